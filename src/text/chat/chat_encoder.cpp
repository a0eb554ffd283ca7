#include "text/chat/chat_encoder.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

/// Returns the options for text of a chat without added tokens.
EncodeOptions plain(bool begins_text) {
  return {.add_special_tokens = false, .match_added_tokens = false, .begins_text = begins_text};
}

/// Returns the first content that overlaps `range`; null if there is none.
const TextRange* first_overlap(const std::vector<TextRange>& contents, TextRange range) {
  const auto found =
      std::upper_bound(contents.begin(), contents.end(), range.begin,
                       [](std::size_t at, const TextRange& content) { return at < content.end; });
  return found != contents.end() && found->begin < range.end ? &*found : nullptr;
}

/// Returns the length of the character at `at`.
std::size_t character_length(std::string_view text, std::size_t at) {
  std::size_t end = at + 1;
  while (end < text.size() && !begins_character(text[end])) ++end;
  return end - at;
}

char find_blank(const std::vector<AddedToken>& tokens) {
  for (char c = 1; c < 127; ++c) {
    const bool used = std::any_of(tokens.begin(), tokens.end(), [c](const AddedToken& token) {
      return token.content.find(c) != std::string::npos;
    });
    if (!used) return c;
  }
  fail(ErrorKind::data,
       "The added tokens of the tokenizer use every ASCII character. Remove one of them.");
}

/// Returns all boundaries of the structure strictly inside `run`, ascending.
std::vector<std::size_t> borders_inside(const RenderedChat& chat, TextRange run) {
  std::vector<std::size_t> borders;
  const auto add = [&](TextRange range) {
    for (const std::size_t at : {range.begin, range.end}) {
      if (at > run.begin && at < run.end) borders.push_back(at);
    }
  };
  for (const TextRange& answer : chat.answers) add(answer);
  for (const TextRange& header : chat.headers) add(header);
  for (const TurnEnd& end : chat.ends) {
    add(end.token);
    if (end.line_end) add({end.token.end, end.token.end + 1});
  }
  std::sort(borders.begin(), borders.end());
  borders.erase(std::unique(borders.begin(), borders.end()), borders.end());
  return borders;
}

}  // namespace

SpecialInContent parse_special_in_content(std::string_view name) {
  if (name == "text") return SpecialInContent::text;
  if (name == "allow") return SpecialInContent::allow;
  if (name == "error") return SpecialInContent::error;
  fail(ErrorKind::usage, "--special-in-content {}, must be text, allow or error", name);
}

ChatEncoder::ChatEncoder(Tokenizer tokenizer, SpecialInContent special)
    : tokenizer_(std::move(tokenizer)),
      special_(special),
      matcher_(tokenizer_.added_tokens()),
      blank_(find_blank(tokenizer_.added_tokens())) {}

std::vector<ChatEncoder::Part> ChatEncoder::split(std::string_view text) const {
  TextParts texts;
  matcher_.split(text, true, texts);
  std::vector<Part> parts;
  parts.reserve(texts.list.size());
  std::size_t done = 0;  // only tokens made of white space can overlap the previous token
  for (const TextPart& part : texts.list) {
    const auto begin = std::max(done, static_cast<std::size_t>(part.text.data() - text.data()));
    done = std::max(begin,
                    static_cast<std::size_t>(part.text.data() - text.data()) + part.text.size());
    parts.push_back({{begin, done}, part.id});
  }
  return parts;
}

std::vector<ChatEncoder::Part> ChatEncoder::split_structure(const RenderedChat& chat) const {
  std::vector<Part> parts = split(chat.text);
  std::string shadow;  // text in which a character of each forged token is replaced
  // A token may include white space of a content next to it, but its own characters must not come
  // from a content.
  const auto forged = [&](const Part& part) -> const TextRange* {
    if (!part.id) return nullptr;
    const std::string own = tokenizer_.token_content(*part.id);
    const std::string_view whole = std::string_view(shadow.empty() ? chat.text : shadow)
                                       .substr(part.range.begin, part.range.end - part.range.begin);
    const std::size_t begin = part.range.begin + whole.find(own);
    return first_overlap(chat.contents, {begin, begin + own.size()});
  };
  for (bool again = true; again;) {
    again = false;
    std::string next;
    for (const Part& part : parts) {
      const TextRange* const content = forged(part);
      if (content == nullptr) continue;
      if (next.empty()) next = shadow.empty() ? chat.text : shadow;
      const std::string own = tokenizer_.token_content(*part.id);
      const std::size_t begin = next.find(own, part.range.begin);
      const std::size_t at = std::max(begin, content->begin);
      const std::size_t length = character_length(chat.text, at);
      next.replace(at, length, length, blank_);
      again = true;
    }
    if (again) {
      shadow = std::move(next);
      parts = split(shadow);
    }
  }
  return parts;
}

void ChatEncoder::encode_run(const RenderedChat& chat, TextRange run, EncodedChat& encoded) const {
  const std::string_view text = std::string_view(chat.text).substr(run.begin, run.end - run.begin);
  const std::vector<std::uint32_t> ids = tokenizer_.encode(text, plain(run.begin == 0));
  const auto bytes_of = [this](const std::vector<std::uint32_t>& tokens) {
    std::size_t bytes = 0;
    for (const std::uint32_t id : tokens) bytes += tokenizer_.token_bytes(id).size();
    return bytes;
  };
  encoded.ids.insert(encoded.ids.end(), ids.begin(), ids.end());
  std::size_t at = 0;
  if (bytes_of(ids) == text.size()) {
    for (const std::uint32_t id : ids) {
      at += tokenizer_.token_bytes(id).size();
      encoded.place.push_back(2 * (run.begin + at));
    }
    return;
  }
  // A normalizer or a prefix space changed the bytes. The position of a boundary in the new bytes
  // is the length of the text before it, encoded separately.
  std::vector<std::size_t> borders = borders_inside(chat, run);
  std::vector<std::size_t> moved;
  for (const std::size_t border : borders)
    moved.push_back(
        bytes_of(tokenizer_.encode(text.substr(0, border - run.begin), plain(run.begin == 0))));
  borders.insert(borders.begin(), run.begin);
  moved.insert(moved.begin(), 0);
  std::size_t k = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    at += tokenizer_.token_bytes(ids[i]).size();
    while (k + 1 < moved.size() && moved[k + 1] <= at) ++k;
    const bool last = i + 1 == ids.size();
    encoded.place.push_back(last ? 2 * run.end : 2 * borders[k] + (moved[k] == at ? 0 : 1));
  }
}

std::optional<std::string> ChatEncoder::encode(const RenderedChat& chat,
                                               EncodedChat& encoded) const {
  encoded.ids.clear();
  encoded.place.assign(1, 0);
  std::vector<Part> parts;
  if (special_ == SpecialInContent::text) {
    parts = split_structure(chat);
  } else {
    parts = split(chat.text);
  }
  for (const Part& part : parts) {
    if (!part.id) {
      encode_run(chat, part.range, encoded);
      continue;
    }
    if (special_ == SpecialInContent::error) {
      const std::string own = tokenizer_.token_content(*part.id);
      const std::size_t begin = chat.text.find(own, part.range.begin);
      if (first_overlap(chat.contents, {begin, begin + own.size()}) != nullptr)
        return formatted("'{}'", own);
    }
    encoded.ids.push_back(*part.id);
    encoded.place.push_back(2 * part.range.end);
  }
  return std::nullopt;
}

}  // namespace trireme::text
