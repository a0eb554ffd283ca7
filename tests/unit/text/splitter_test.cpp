#include "text/split/splitter.hpp"

#include <gtest/gtest.h>

#include "unit/text/plain_pattern.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::text {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(SplitStep step, std::string_view text) {
  Pieces pieces;
  split_by(step, text, [&](std::string_view piece) { pieces.emplace_back(piece); });
  return pieces;
}

/// Mixtures with many characters that the patterns distinguish.
std::string dense_text(samples::Rng& rng, std::uint32_t max_parts) {
  static const std::vector<std::string> parts = {" ",
                                                 "  ",
                                                 "\n",
                                                 "\r\n",
                                                 "\t",
                                                 "'s",
                                                 "'S",
                                                 "'ll",
                                                 "'RE",
                                                 "'\u017F",
                                                 "'",
                                                 "/",
                                                 "(",
                                                 ";",
                                                 "the",
                                                 "HTTP",
                                                 "fooBar",
                                                 "I",
                                                 "1",
                                                 "1234",
                                                 "中",
                                                 "\u0301",
                                                 "é",
                                                 "Ǆ",
                                                 "ǅ",
                                                 "ʰ",
                                                 "\u0661",
                                                 "\u3000",
                                                 "\u00A0",
                                                 "\u2028",
                                                 "\u200B",
                                                 "\U0001F44D",
                                                 "ſ",
                                                 "abcdefghijklmnop",
                                                 "            ",
                                                 "x"};
  std::string text;
  for (std::uint32_t n = rng() % (max_parts + 1); n > 0; --n) text += parts[rng() % parts.size()];
  return text;
}

class KnownPattern : public testing::TestWithParam<SplitStep> {};

TEST_P(KnownPattern, EqualsItsRegexOnRandomText) {
  samples::PlainPattern plain(regex_of(GetParam()));
  samples::Rng rng(3);
  for (int i = 0; i < 3000; ++i) {
    // Long texts use the fast path, which short texts rarely reach.
    const std::uint32_t parts = i % 4 == 0 ? 120 : 12;
    const std::string text =
        i % 3 == 0 ? samples::random_text(rng, static_cast<int>(parts)) : dense_text(rng, parts);
    ASSERT_EQ(split(GetParam(), text), plain.split(text)) << text;
  }
}

TEST_P(KnownPattern, EqualsItsRegexOnAsciiOfEveryLength) {
  samples::PlainPattern plain(regex_of(GetParam()));
  samples::Rng rng(4);
  const std::string_view letters = "aB1 '\n/(sTe\r\tll";
  for (std::size_t size = 1; size < 300; ++size) {
    std::string text(size, 'a');
    const std::uint32_t kinds = 2 + rng() % static_cast<std::uint32_t>(letters.size() - 1);
    for (char& c : text) c = letters[rng() % kinds];
    ASSERT_EQ(split(GetParam(), text), plain.split(text)) << text;
    std::string run(size, letters[size % letters.size()]);
    run += letters[rng() % letters.size()];
    ASSERT_EQ(split(GetParam(), run), plain.split(run)) << run;
  }
}

INSTANTIATE_TEST_SUITE_P(All, KnownPattern,
                         testing::Values(SplitStep::gpt2, SplitStep::llama3, SplitStep::qwen2,
                                         SplitStep::qwen35, SplitStep::cl100k, SplitStep::o200k,
                                         SplitStep::tekken));

TEST(Splitter, ShowsHowThePatternsDiffer) {
  const std::string text = "don'T  12345 fooBar(x)//\n\n  y\n ";

  EXPECT_EQ(split(SplitStep::llama3, text), (Pieces{"don", "'T", " ", " ", "123", "45", " fooBar",
                                                    "(x", ")//\n\n", " ", " y", "\n", " "}));
  EXPECT_EQ(split(SplitStep::qwen2, text),
            (Pieces{"don", "'T", " ", " ", "1", "2", "3", "4", "5", " fooBar", "(x", ")//\n\n", " ",
                    " y", "\n", " "}));
  EXPECT_EQ(split(SplitStep::cl100k, text),
            (Pieces{"don", "'T", " ", " ", "12345", " fooBar", "(x", ")//\n\n", " ", " y", "\n "}));
  EXPECT_EQ(split(SplitStep::o200k, text), (Pieces{"don'T", " ", " ", "123", "45", " foo", "Bar",
                                                   "(x", ")//\n\n", " ", " y", "\n", " "}));
  EXPECT_EQ(split(SplitStep::qwen35, "e\u0301 \u0301"), (Pieces{"e\u0301", " \u0301"}));
  EXPECT_EQ(split(SplitStep::qwen2, "e\u0301 \u0301"), (Pieces{"e", "\u0301", " \u0301"}));
}

TEST(Splitter, CutsDigitsApart) {
  EXPECT_EQ(split(SplitStep::digits, "a12²b 3"), (Pieces{"a", "12²", "b ", "3"}));
  EXPECT_EQ(split(SplitStep::single_digits, "a12²b"), (Pieces{"a", "1", "2", "²", "b"}));
  EXPECT_EQ(split(SplitStep::digits, "x\U00011DE0"), (Pieces{"x", "\U00011DE0"}));  // Unicode 17
  EXPECT_EQ(split(SplitStep::qwen2, "(\U00011DE0"), (Pieces{"(\U00011DE0"}));       // not in \p{N}
}

TEST(Splitter, KnowsPatternsByTheirExactString) {
  for (const SplitStep step : {SplitStep::gpt2, SplitStep::qwen35, SplitStep::tekken})
    EXPECT_EQ(step_of_pattern(regex_of(step)), step);
  EXPECT_EQ(step_of_pattern(R"(\p{N}{1,3})"), std::nullopt);
  EXPECT_EQ(step_of_pattern(std::string(regex_of(SplitStep::gpt2)) + " "), std::nullopt);
  EXPECT_EQ(regex_of(SplitStep::digits), "");
}

}  // namespace
}  // namespace trireme::text
