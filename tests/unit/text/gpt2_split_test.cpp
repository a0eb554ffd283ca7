#include "text/split/gpt2_split.hpp"

#include <gtest/gtest.h>

#include <vector>

#include "unit/text/text_samples.hpp"

namespace trireme::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view text) {
  Pieces pieces;
  split_by<Gpt2Pattern>(text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

/// Matches the pattern, alternative by alternative, with backtracking: slow but literal.
class PlainPattern {
 public:
  explicit PlainPattern(std::string_view text) {
    for (std::size_t at = 0; at < text.size();) {
      std::size_t length = 0;
      const std::uint32_t c = utf8_decode(text.data() + at, length);
      chars_.push_back(
          {std::string(text.substr(at, length)), static_cast<std::uint8_t>(char_class(c) & 7)});
      at += length;
    }
  }

  Pieces run() {
    Pieces pieces;
    for (std::size_t at = 0; at < chars_.size();) {
      const std::size_t length = match(at);
      std::string piece;
      for (std::size_t i = 0; i < length; ++i) piece += chars_[at + i].text;
      pieces.push_back(piece);
      at += length;
    }
    return pieces;
  }

 private:
  struct Char {
    std::string text;
    std::uint8_t kind;
  };

  std::size_t match(std::size_t at) const {
    for (const std::string word : {"'s", "'t", "'re", "'ve", "'m", "'ll", "'d"}) {
      std::size_t i = 0;
      while (i < word.size() && at + i < chars_.size() &&
             chars_[at + i].text == std::string(1, word[i]))
        ++i;
      if (i == word.size()) return i;
    }
    for (const std::uint8_t kind : {kLetter, kNumber, std::uint8_t{0}}) {
      const std::size_t blank = chars_[at].text == " " ? 1 : 0;
      const std::size_t length = run_of(at + blank, kind);
      if (length > 0) return blank + length;
    }
    const std::size_t spaces = run_of(at, kSpace);
    for (std::size_t length = spaces; length > 0; --length) {  // \s+(?!\S)
      if (at + length == chars_.size() || chars_[at + length].kind == kSpace) return length;
    }
    return spaces;
  }

  std::size_t run_of(std::size_t at, std::uint8_t kind) const {
    std::size_t length = 0;
    while (at + length < chars_.size() && chars_[at + length].kind == kind) ++length;
    return length;
  }

  std::vector<Char> chars_;
};

TEST(Gpt2Split, CutsAsThePatternSays) {
  EXPECT_EQ(split(""), Pieces{});
  EXPECT_EQ(split("Hello world"), (Pieces{"Hello", " world"}));
  EXPECT_EQ(split("don't WE'LL 's"), (Pieces{"don", "'t", " WE", "'", "LL", " '", "s"}));
  EXPECT_EQ(split("they're''ve"), (Pieces{"they", "'re", "''", "ve"}));
  EXPECT_EQ(split("a  b"), (Pieces{"a", " ", " b"}));
  EXPECT_EQ(split("a  \n  b"), (Pieces{"a", "  \n ", " b"}));
  EXPECT_EQ(split("a\n"), (Pieces{"a", "\n"}));
  EXPECT_EQ(split("a\n\tb"), (Pieces{"a", "\n", "\t", "b"}));
  EXPECT_EQ(split("   "), (Pieces{"   "}));
  EXPECT_EQ(split("x=3.14!"), (Pieces{"x", "=", "3", ".", "14", "!"}));
  EXPECT_EQ(split("你好，世界 42"), (Pieces{"你好", "，", "世界", " 42"}));
  EXPECT_EQ(split("a\u3000\u3000b"), (Pieces{"a", "\u3000", "\u3000", "b"}));
  EXPECT_EQ(split("'"), (Pieces{"'"}));
  EXPECT_EQ(split("'l"), (Pieces{"'", "l"}));
  EXPECT_EQ(split(" "), (Pieces{" "}));
}

TEST(Gpt2Split, KnowsLettersOfUnicode16) {
  EXPECT_EQ(split("a\U00010D50"), (Pieces{"a\U00010D50"}));    // Garay letter, new in Unicode 16
  EXPECT_EQ(split("1\U00010D40"), (Pieces{"1\U00010D40"}));    // Garay digit
  EXPECT_EQ(split("a\u180Eb"), (Pieces{"a", "\u180E", "b"}));  // no longer white space
}

TEST(Gpt2Split, EqualsThePlainPatternOnRandomText) {
  samples::Rng rng(1);
  for (int i = 0; i < 5000; ++i) {
    const std::string text = samples::random_text(rng, 12);
    ASSERT_EQ(split(text), PlainPattern(text).run()) << text;
  }
}

}  // namespace
}  // namespace trireme::text
