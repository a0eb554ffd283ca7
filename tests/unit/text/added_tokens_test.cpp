#include "text/added_tokens.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace trireme::text {
namespace {

/// Returns the parts in one line: tokens as [id], text unchanged, separated by bars.
std::string split(const std::vector<AddedToken>& tokens, std::string_view text, bool nfc = false) {
  TextParts parts;
  AddedTokenMatcher(tokens, Normalizer::nfc_if(nfc)).split(text, true, parts);
  std::string line;
  for (const TextPart& part : parts.list) {
    line.append(part.id ? "[" : "|")
        .append(part.id ? std::to_string(*part.id) : std::string(part.text))
        .append(part.id ? "]" : "|");
  }
  return line;
}

TEST(AddedTokens, TakesLeftmostThenLongest) {
  const std::vector<AddedToken> tokens = {
      {.content = "<a>", .id = 1}, {.content = "<a><b>", .id = 2}, {.content = "b>", .id = 3}};

  EXPECT_EQ(split(tokens, ""), "");
  EXPECT_EQ(split(tokens, "x<a>y"), "|x|[1]|y|");
  EXPECT_EQ(split(tokens, "<a><b><a><"), "[2][1]|<|");
  EXPECT_EQ(split(tokens, "<b>"), "|<|[3]");
  EXPECT_EQ(split({}, "<a>"), "|<a>|");
}

TEST(AddedTokens, FindsRawTokensBeforeNormalizedOnes) {
  const std::vector<AddedToken> tokens = {{.content = "abc", .id = 1, .normalized = true},
                                          {.content = "c", .id = 2, .normalized = false}};

  EXPECT_EQ(split(tokens, "abcd"), "|ab|[2]|d|");
}

TEST(AddedTokens, NormalizesBetweenTheRounds) {
  const std::vector<AddedToken> tokens = {{.content = "e\u0301t", .id = 1, .normalized = false},
                                          {.content = "cafe\u0301", .id = 2, .normalized = true}};

  EXPECT_EQ(split(tokens, "cafe\u0301 café e\u0301t ét e\u0301", true), "[2]| |[2]| |[1]| ét é|");
  EXPECT_EQ(split(tokens, "cafe\u0301 café", false), "[2]| café|");
}

TEST(AddedTokens, SingleWordNeedsNoWordCharacterBeside) {
  const std::vector<AddedToken> tokens = {{.content = "cat", .id = 1, .single_word = true}};

  EXPECT_EQ(split(tokens, "cat, a cat."), "[1]|, a |[1]|.|");
  EXPECT_EQ(split(tokens, "cats cat_ écat cat世 cat\u0301"), "|cats cat_ écat cat世 cat\u0301|");
  EXPECT_EQ(split(tokens, "catcat cat"), "|catcat |[1]");
}

TEST(AddedTokens, StripsWhiteSpaceButNotTwice) {
  const std::vector<AddedToken> tokens = {{.content = "L", .id = 1, .lstrip = true},
                                          {.content = "R", .id = 2, .rstrip = true}};

  EXPECT_EQ(split(tokens, "a \t\u3000L b"), "|a|[1]| b|");
  EXPECT_EQ(split(tokens, "a R \u00A0 b"), "|a |[2]|b|");
  EXPECT_EQ(split(tokens, "R  L"), "[2][1]");
  EXPECT_EQ(split(tokens, "  L"), "[1]");
  EXPECT_EQ(split(tokens, "R  "), "[2]");
}

/// Expected: Hugging Face tokenizers 0.23.3.
TEST(AddedTokens, DropsATokenThatTheOneBeforeHasTakenAsWhiteSpace) {
  const std::vector<AddedToken> both = {{.content = " ", .id = 1, .lstrip = true, .rstrip = true}};
  EXPECT_EQ(split(both, "a  b"), "|a|[1]|b|");
  EXPECT_EQ(split(both, "   "), "[1]");
  EXPECT_EQ(split(both, "a b c "), "|a|[1]|b|[1]|c|[1]");
  const std::vector<AddedToken> left = {{.content = " ", .id = 1, .lstrip = true},
                                        {.content = "R", .id = 2, .rstrip = true}};
  EXPECT_EQ(split(left, "R "), "[2]");
  EXPECT_EQ(split(left, "R x "), "[2]|x|[1]");
  for (const char* text : {"R  ", "R   x", "R \u3000 R  "}) {  // tokenizers panics for this text
    TextParts parts;
    AddedTokenMatcher(left).split(text, true, parts);
    std::string joined;
    for (const TextPart& part : parts.list) joined += part.text;
    EXPECT_EQ(joined, text);
  }
}

TEST(AddedTokens, StaysLinearWhenEveryCharacterIsAStrippingToken) {
  std::string text(300000, '\n');
  for (int i = 0; i < 300000; ++i) text += "\n ";
  for (const bool left : {false, true}) {
    const std::vector<AddedToken> tokens = {
        {.content = "\n", .id = 1, .lstrip = left, .rstrip = !left}};
    TextParts parts;

    AddedTokenMatcher(tokens).split(text, true, parts);  // quadratic time would take minutes

    EXPECT_EQ(std::count_if(parts.list.begin(), parts.list.end(),
                            [](const TextPart& part) { return part.id.has_value(); }),
              600000);
  }
}

}  // namespace
}  // namespace trireme::text
