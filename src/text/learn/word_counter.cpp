#include "text/learn/word_counter.hpp"

#include <algorithm>

#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

AddedTokenMatcher matcher_of(const std::vector<std::string>& contents) {
  std::vector<AddedToken> tokens;
  for (std::size_t i = 0; i < contents.size(); ++i) {
    tokens.push_back({.content = contents[i],
                      .id = static_cast<std::uint32_t>(i),
                      .normalized = false,
                      .special = true});
  }
  return AddedTokenMatcher(tokens);
}

}  // namespace

CutTokens::CutTokens(std::vector<std::string> contents)
    : contents_(std::move(contents)), matcher_(matcher_of(contents_)) {}

void WordCounter::add_one(std::string_view text) {
  const auto count = [this](std::string_view word) { pieces_.add(word, 1); };
  if (!cut_) return split_by(pattern_, text, count);
  parts_.clear();
  cut_->split(text, parts_);
  for (const TextPart& part : parts_) {
    part.id ? add_cut_token(cut_->contents()[*part.id], 1) : split_by(pattern_, part.text, count);
  }
}

void WordCounter::add(std::string_view text) {
  check_utf8(text, "training text");
  add_one(text);
  pieces_.flush();
}

void WordCounter::add_lines(std::string_view text) {
  check_utf8(text, "training text");
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    const std::size_t length = newline == std::string_view::npos ? text.size() : newline + 1;
    add_one(text.substr(0, length));
    text.remove_prefix(length);
  }
  pieces_.flush();
}

void WordCounter::add_word(std::string_view word, std::uint64_t count) {
  pieces_.add(word, count);
  pieces_.flush();
}

void WordCounter::add_cut_token(std::string_view token, std::uint64_t count) {
  cut_tokens_[std::string(token)] += count;
}

void WordCounter::merge(const WordCounter& other) {
  other.pieces_.for_each(
      [this](std::string_view word, std::uint64_t count) { pieces_.add(word, count); });
  pieces_.flush();
  for (const auto& [token, count] : other.cut_tokens_) add_cut_token(token, count);
}

void WordCounter::clear() {
  pieces_ = WordTable();
  cut_tokens_.clear();
}

}  // namespace trireme::text
