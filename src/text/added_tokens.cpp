#include "text/added_tokens.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "text/unicode/unicode_class.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

bool starts_with_word(std::string_view text) {
  std::size_t length = 0;
  return !text.empty() && (char_class(utf8_decode(text.data(), length)) & kWord) != 0;
}

bool ends_with_word(std::string_view text) {
  return !text.empty() && starts_with_word(text.substr(utf8_last_start(text)));
}

bool is_space(std::string_view text) {
  std::size_t length = 0;
  return (char_class(utf8_decode(text.data(), length)) & kSpace) != 0;
}

/// Returns the start of the white space at the end of `text`.
std::size_t trailing_space(std::string_view text) {
  while (!text.empty()) {
    const std::size_t last = utf8_last_start(text);
    if (!is_space(text.substr(last))) break;
    text = text.substr(0, last);
  }
  return text.size();
}

/// Returns the length of the white space at the start of `text`.
std::size_t leading_space(std::string_view text) {
  std::size_t end = 0;
  while (end < text.size() && is_space(text.substr(end))) {
    std::size_t length = 0;
    utf8_decode(text.data() + end, length);
    end += length;
  }
  return end;
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher(const std::vector<AddedToken>& tokens, Normalizer normalizer)
    : tokens_(tokens), normalizer_(std::move(normalizer)) {
  raw_.roots.fill(-1);
  normalized_.roots.fill(-1);
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (tokens_[i].normalized) tokens_[i].content = normalizer_.apply(tokens_[i].content);
    if (tokens_[i].content.empty()) continue;
    insert(tokens_[i].normalized ? normalized_ : raw_, static_cast<std::int32_t>(i));
  }
}

void AddedTokenMatcher::insert(Trie& trie, std::int32_t token) {
  const std::string& content = tokens_[static_cast<std::size_t>(token)].content;
  std::int32_t at = -1;
  for (const char byte : content) {
    auto& first = at < 0 ? trie.roots[static_cast<unsigned char>(byte)]
                         : trie.nodes[static_cast<std::size_t>(at)].first_child;
    std::int32_t child = first;
    while (child >= 0 && trie.nodes[static_cast<std::size_t>(child)].byte != byte) {
      child = trie.nodes[static_cast<std::size_t>(child)].next_sibling;
    }
    if (child < 0) {
      child = static_cast<std::int32_t>(trie.nodes.size());
      if (at < 0) {
        trie.only_first = byte;
        ++trie.num_first;
      }
      const Node node{.next_sibling = first, .byte = byte};
      first = child;  // before push_back, which may move what `first` refers to
      trie.nodes.push_back(node);
    }
    at = child;
  }
  trie.nodes[static_cast<std::size_t>(at)].token = token;
}

std::int32_t AddedTokenMatcher::longest_at(const Trie& trie, std::string_view text) const {
  std::int32_t best = -1;
  std::int32_t at = trie.roots[static_cast<unsigned char>(text[0])];
  for (std::size_t i = 1; at >= 0; ++i) {
    const Node& node = trie.nodes[static_cast<std::size_t>(at)];
    if (node.token >= 0) best = node.token;
    if (i >= text.size()) break;
    at = node.first_child;
    while (at >= 0 && trie.nodes[static_cast<std::size_t>(at)].byte != text[i]) {
      at = trie.nodes[static_cast<std::size_t>(at)].next_sibling;
    }
  }
  return best;
}

std::size_t AddedTokenMatcher::next_start(const Trie& trie, std::string_view text,
                                          std::size_t from) {
  if (trie.num_first == 0 || from >= text.size()) return text.size();
  if (trie.num_first == 1) {
    const void* found = std::memchr(text.data() + from, trie.only_first, text.size() - from);
    return found == nullptr
               ? text.size()
               : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  }
  while (from < text.size() && trie.roots[static_cast<unsigned char>(text[from])] < 0) ++from;
  return from;
}

void AddedTokenMatcher::split_by(const Trie& trie, std::string_view text,
                                 std::vector<TextPart>& parts) const {
  std::size_t done = 0;        // text before this position is in `parts`
  std::size_t space_stop = 0;  // end of the last white space that a token included
  for (std::size_t at = next_start(trie, text, 0); at < text.size();) {
    const std::int32_t found = longest_at(trie, text.substr(at));
    if (found < 0) {
      at = next_start(trie, text, at + 1);
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(found)];
    std::size_t start = at;
    std::size_t stop = at + token.content.size();
    at = next_start(trie, text, stop);
    if (token.single_word &&
        (ends_with_word(text.substr(0, start)) || starts_with_word(text.substr(stop))))
      continue;
    // White space that the previous match included is not scanned again, so the time stays linear.
    if (token.lstrip)
      start = start > done ? done + trailing_space(text.substr(done, start - done)) : done;
    if (token.rstrip) {
      if (stop >= space_stop) space_stop = stop + leading_space(text.substr(stop));
      stop = space_stop;
    }
    // Skip a token of white space that the previous match included completely. (If only a part is
    // included, Hugging Face's tokenizers panics.)
    if (stop <= start) continue;
    if (done < start) parts.push_back({text.substr(done, start - done), std::nullopt});
    parts.push_back({text.substr(start, stop - start), token.id});
    done = stop;
  }
  if (done < text.size()) parts.push_back({text.substr(done), std::nullopt});
}

void AddedTokenMatcher::split_normalized(std::string_view text, bool match, bool begins_text,
                                         TextParts& parts) const {
  if (!normalizer_.surely_keeps(text))
    text = parts.normalized.emplace_back(normalizer_.apply(text));
  const std::size_t first = parts.list.size();
  if (match && normalized_.num_first != 0) {
    split_by(normalized_, text, parts.list);
  } else if (!text.empty()) {
    parts.list.push_back({text, std::nullopt});
  }
  if (begins_text && first < parts.list.size()) parts.list[first].begins_text = true;
}

void AddedTokenMatcher::split(std::string_view text, bool match, TextParts& parts) const {
  if (!match || raw_.num_first == 0) return split_normalized(text, match, true, parts);
  if (normalizer_.is_identity() && normalized_.num_first == 0) {
    const std::size_t first = parts.list.size();
    split_by(raw_, text, parts.list);
    if (first < parts.list.size()) parts.list[first].begins_text = true;
    return;
  }
  std::vector<TextPart> rough;
  split_by(raw_, text, rough);
  for (const TextPart& part : rough) {
    if (part.id) {
      parts.list.push_back(part);
    } else {
      split_normalized(part.text, match, part.text.data() == text.data(), parts);
    }
  }
}

}  // namespace trireme::text
