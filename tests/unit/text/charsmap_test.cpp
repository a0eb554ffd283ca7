#include "text/unicode/charsmap.hpp"

#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "text/tokenizer.hpp"
#include "text/unicode/graphemes.hpp"

/// The oracle tokenizer_charsmap.py compares the rules of SentencePiece with Hugging Face.
namespace trireme::text {
namespace {

using Rules = std::map<std::string, std::string>;

/// Makes the double array of darts-clone, without its compression.
class TrieWriter {
 public:
  /// `values`: key -> value, in the order of the keys.
  explicit TrieWriter(const std::map<std::string, std::uint32_t>& values) : values_(values) {
    units_.resize(1024);
    used_.resize(units_.size());
    used_[0] = true;
    write(0, 0, "");
  }

  [[nodiscard]] const std::vector<std::uint32_t>& units() const { return units_; }

 private:
  void write(std::uint32_t index, std::uint32_t label, const std::string& prefix) {
    std::map<std::uint32_t, std::string> children;  // label -> prefix; 0: the value of this node
    for (const auto& [key, value] : values_) {
      if (!key.starts_with(prefix)) continue;
      const std::string_view rest = std::string_view(key).substr(prefix.size());
      const auto next = static_cast<unsigned char>(rest.empty() ? '\0' : rest.front());
      children[next] = prefix + std::string(rest.substr(0, 1));
    }
    std::uint32_t base = 256;
    const auto is_taken = [&](const auto& one) { return used_[base ^ one.first]; };
    // Nodes with one base would share their children.
    while (bases_.contains(base) || std::ranges::any_of(children, is_taken)) ++base;
    bases_.insert(base);
    units_[index] = (index ^ base) << 10 | label | (children.contains(0) ? 1U << 8 : 0);
    for (const auto& [next, unused] : children) used_[base ^ next] = true;
    for (const auto& [next, child] : children) {
      if (next == 0) {
        units_[base] = values_.at(prefix) | 1U << 31;
      } else {
        write(base ^ next, next, child);
      }
    }
  }

  const std::map<std::string, std::uint32_t>& values_;
  std::vector<std::uint32_t> units_;
  std::vector<bool> used_;
  std::set<std::uint32_t> bases_;
};

std::string bytes_of(const std::vector<std::uint32_t>& units, const std::string& replacements) {
  std::string bytes;
  const auto append = [&bytes](std::uint32_t value) {
    for (int i = 0; i < 4; ++i) bytes += static_cast<char>(value >> (8 * i) & 0xFF);
  };
  append(static_cast<std::uint32_t>(units.size() * 4));
  for (const std::uint32_t unit : units) append(unit);
  return bytes + replacements;
}

std::string charsmap_of(const Rules& rules) {
  std::string replacements;
  std::map<std::string, std::uint32_t> values;
  for (const auto& [key, to] : rules) {
    values[key] = static_cast<std::uint32_t>(replacements.size());
    replacements += to + '\0';
  }
  return bytes_of(TrieWriter(values).units(), replacements);
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    const std::size_t count = std::min<std::size_t>(bytes.size() - at, 3);
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 3; ++i)
      bits = bits << 8 | (i < count ? static_cast<unsigned char>(bytes[at + i]) : 0U);
    for (std::size_t i = 0; i < 4; ++i)
      text += i <= count ? kDigits[bits >> (18 - 6 * i) & 63] : '=';
  }
  return text;
}

const Rules kRules = {{"\t", " "},          {"\r", " "},    {"\uFB01", "fi"}, {"e\u0301", "\u00E9"},
                      {"\u212B", "\u00C5"}, {"\u200B", ""}, {"ab", "c"}};

TEST(Charsmap, ReplacesCharactersAndClusters) {
  const Charsmap map(charsmap_of(kRules), "T");

  EXPECT_EQ(map.apply(""), "");
  EXPECT_EQ(map.apply("plain text"), "plain text");
  EXPECT_EQ(map.apply("\uFB01x\ty"), "fix y");
  EXPECT_EQ(map.apply("e\u0301e"), "\u00E9e");
  EXPECT_EQ(map.apply("a\u200Bb"), "ab");
  EXPECT_EQ(map.apply("ab"), "ab") << "a key of two clusters is never found";
  EXPECT_EQ(map.apply("\r\nx"), " x") << "CR LF is one cluster";
}

/// The library does the same.
TEST(Charsmap, DropsMarksOfAShortClusterOnly) {
  const Charsmap map(charsmap_of(kRules), "T");

  EXPECT_EQ(map.apply("\u212B\u0301"), "\u00C5");
  EXPECT_EQ(map.apply("\u212B\u0301\u0302"), "\u00C5\u0301\u0302") << "7 bytes";
}

TEST(Charsmap, RefusesDamagedBytes) {
  const std::vector<std::uint32_t> good = TrieWriter({{"a", 0}}).units();
  const auto with_unit = [&](std::size_t index, std::uint32_t unit) {
    std::vector<std::uint32_t> units = good;
    units[index] = unit;
    return units;
  };
  const std::uint32_t node = 256 ^ 'a';
  const std::uint32_t leaf = node ^ good[node] >> 10;
  const std::uint32_t root_offset = good[0] >> 10;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "it has 0 bytes"},
      {std::string("\4\0\0\0ab", 6), "the trie has 4 bytes, but 2 bytes follow"},
      {std::string("\0\0\0\0", 4), "the trie has 0 bytes"},
      {std::string("\3\0\0\0abcd", 8), "the trie has 3 bytes"},
      {bytes_of(good, ""), "has the replacement at byte 0 of 0"},
      {bytes_of(good, "\xC3"), "UTF-8"},
      {bytes_of(with_unit(leaf, 1U << 31 | 1), std::string("\u00E9\0", 3)),
       "has the replacement at byte 1 of 3"},
      {bytes_of(with_unit(node, 'a' | 1U << 8 | 0x1FFFFFU << 10), std::string("x\0", 2)),
       "has no value"},
      {bytes_of(with_unit(node, 'a' | (node ^ root_offset) << 10), std::string("x\0", 2)),
       "has a cycle"}};
  for (const auto& [bytes, expected] : cases) {
    std::string message = "accepted";
    try {
      (void)Charsmap(bytes, "T");
    } catch (const Error& error) {
      message = error.kind() == ErrorKind::data ? error.what() : "wrong kind";
    }
    EXPECT_NE(message.find(expected), std::string::npos) << expected << ": " << message;
  }
}

TEST(Charsmap, FindsClusters) {
  const std::vector<std::pair<std::string, std::size_t>> cases = {
      {"ab", 1},
      {"\r\na", 2},
      {"\n\u0301", 1},
      {"a\u0301\u0302b", 5},
      {"\u1100\u1161\u11A8\u1100", 9},   // Hangul: lead, vowel, tail
      {"\uAC00\u11A8a", 6},              // Hangul syllable and tail
      {"\u0600a", 3},                    // Prepend
      {"\u263A\uFE0F\u200D\u263A", 12},  // pictographic, joiner, pictographic
      {"a\u200D\u263A", 4},              // a joiner after a letter
      {"\u0915\u094D\u0930a", 9},        // consonant, linker, consonant
      {"\u0915\u0930", 3},               // without a linker
      {"\u00E9", 2}};
  for (const auto& [text, length] : cases) EXPECT_EQ(grapheme_length(text), length) << text;
}

TEST(Charsmap, DecodesBase64) {
  EXPECT_EQ(decode_base64(""), "");
  EXPECT_EQ(decode_base64("AP8="), std::string("\0\xFF", 2));
  EXPECT_EQ(decode_base64("QUJD"), "ABC");
  for (const char* text : {"QUJ", "QU=J", "Q===", "QUJ!"})
    EXPECT_FALSE(decode_base64(text).has_value()) << text;
}

TEST(Charsmap, NormalizesTheTextOfAUnigramTokenizer) {
  const auto tokenizer_with = [](const std::string& charsmap) {
    const Json json = {
        {"version", "1.0"},
        {"added_tokens", Json::array()},
        {"normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", charsmap}}},
        {"pre_tokenizer", {{"type", "Metaspace"}, {"replacement", "▁"}}},
        {"decoder", {{"type", "Metaspace"}, {"replacement", "▁"}}},
        {"model",
         {{"type", "Unigram"},
          {"unk_id", 0},
          {"vocab", Json::parse(R"([["<unk>", 0], ["▁", -2], ["fi", -3], ["i", -4]])")}}}};
    return Tokenizer::from_files({{"tokenizer.json", json.dump()}}, "T");
  };
  const Tokenizer tokenizer = tokenizer_with(base64(charsmap_of(kRules)));

  EXPECT_EQ(tokenizer.encode("\uFB01\ti"), (std::vector<std::uint32_t>{1, 2, 1, 3}));
  EXPECT_NE(tokenizer.content_hash(),
            tokenizer_with(base64(charsmap_of({{"\uFB01", "f"}}))).content_hash());
  EXPECT_THROW((void)tokenizer_with("!"), Error);
}

}  // namespace
}  // namespace trireme::text
