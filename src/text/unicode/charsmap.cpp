#include "text/unicode/charsmap.hpp"

#include <utility>

#include "core/error.hpp"
#include "text/unicode/graphemes.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

/// Clusters of this size and more are looked up character by character.
constexpr std::size_t kLongCluster = 6;

std::uint32_t little_endian(std::string_view bytes, std::size_t at) {
  std::uint32_t value = 0;
  for (std::size_t i = 4; i-- > 0;) value = value << 8 | static_cast<unsigned char>(bytes[at + i]);
  return value;
}

std::uint32_t offset_of(std::uint32_t unit) {
  return (unit >> 10) << ((unit & (1U << 9)) >> 6);
}

bool has_value(std::uint32_t unit) {
  return (unit >> 8 & 1) != 0;
}

std::uint32_t label_of(std::uint32_t unit) {
  return unit & (1U << 31 | 0xFF);
}

std::uint32_t value_of(std::uint32_t unit) {
  return unit & ((1U << 31) - 1);
}

[[noreturn]] void damaged(const std::string& where, const std::string& problem) {
  fail(ErrorKind::data, "{} is damaged: {}. Copy the tokenizer files again.", where, problem);
}

}  // namespace

Charsmap::Charsmap(std::string_view bytes, const std::string& where) : bytes_(bytes) {
  if (bytes.size() < 4) damaged(where, formatted("it has {} bytes", bytes.size()));
  const std::size_t trie_bytes = little_endian(bytes, 0);
  if (trie_bytes % 4 != 0 || trie_bytes == 0 || trie_bytes > bytes.size() - 4)
    damaged(where,
            formatted("the trie has {} bytes, but {} bytes follow", trie_bytes, bytes.size() - 4));
  for (std::size_t at = 4; at < 4 + trie_bytes; at += 4) units_.push_back(little_endian(bytes, at));
  replacements_ = bytes.substr(4 + trie_bytes);
  check(where);
  for (std::size_t c = 0; c < keeps_ascii_.size(); ++c) {
    const char text = static_cast<char>(c);
    keeps_ascii_[c] = text != '\r' && !replacement({&text, 1});  // CR LF is one cluster
  }
}

std::optional<std::uint32_t> Charsmap::child(std::uint32_t position, unsigned char label) const {
  const std::uint32_t next = position ^ offset_of(units_[position]) ^ label;
  if (next >= units_.size() || label_of(units_[next]) != label) return std::nullopt;
  return next;
}

void Charsmap::check(const std::string& where) const {
  check_utf8(replacements_, formatted("{}, the replacements,", where));
  std::vector<std::uint32_t> open{0};  // nodes with keys that no shorter key begins
  std::size_t visited = 0;
  while (!open.empty()) {
    const std::uint32_t node = open.back();
    open.pop_back();
    if (++visited > units_.size()) damaged(where, "the trie has a cycle");
    for (std::uint32_t label = 1; label < 256; ++label) {
      const auto next = child(node, static_cast<unsigned char>(label));
      if (!next) continue;
      if (!has_value(units_[*next])) {
        open.push_back(*next);
        continue;
      }
      const std::uint32_t leaf = *next ^ offset_of(units_[*next]);
      if (leaf >= units_.size()) damaged(where, formatted("trie node {} has no value", *next));
      const std::uint32_t begin = value_of(units_[leaf]);
      if (begin >= replacements_.size() || !begins_character(replacements_[begin]))
        damaged(where, formatted("trie node {} has the replacement at byte {} of {}", *next, begin,
                                 replacements_.size()));
    }
  }
}

std::optional<std::string_view> Charsmap::replacement(std::string_view text) const {
  std::uint32_t node = 0;
  for (const char c : text) {
    const auto next = c == '\0' ? std::nullopt : child(node, static_cast<unsigned char>(c));
    if (!next) return std::nullopt;
    node = *next;
    if (!has_value(units_[node])) continue;
    const std::uint32_t begin = value_of(units_[node ^ offset_of(units_[node])]);
    const std::string_view rest = std::string_view(replacements_).substr(begin);
    return rest.substr(0, rest.find('\0'));
  }
  return std::nullopt;
}

std::string Charsmap::apply(std::string_view text) const {
  const auto is_plain = [&](std::size_t at) {
    return at >= text.size() || static_cast<unsigned char>(text[at]) < 0x80;
  };
  std::string result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    if (is_plain(at) && is_plain(at + 1) && keeps_ascii_[static_cast<unsigned char>(text[at])]) {
      result += text[at++];  // no mark follows
      continue;
    }
    const std::string_view cluster = text.substr(at, grapheme_length(text.substr(at)));
    at += cluster.size();
    const auto whole = cluster.size() < kLongCluster ? replacement(cluster) : std::nullopt;
    if (whole) {
      result += *whole;
      continue;
    }
    std::size_t length = 0;
    for (std::size_t i = 0; i < cluster.size(); i += length) {
      utf8_decode(cluster.data() + i, length);
      const std::string_view character = cluster.substr(i, length);
      result += replacement(character).value_or(character);
    }
  }
  return result;
}

std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  if (text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && text.ends_with('=')) {
    text.remove_suffix(1);
    ++padding;
  }
  std::string bytes;
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFF);
  }
  return bytes;
}

}  // namespace trireme::text
