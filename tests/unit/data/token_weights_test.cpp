#include "data/order/token_weights.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"

namespace trireme::data {
namespace {

/// Encodes a word: token n is a word of n letters, and each blank in it makes one more token.
std::vector<std::uint32_t> encode(std::string_view word) {
  std::vector<std::uint32_t> ids(1, static_cast<std::uint32_t>(word.size()));
  for (const char c : word) {
    if (c == ' ') ids.push_back(0);
  }
  return word == "unknown" ? std::vector<std::uint32_t>{} : ids;
}

TokenWeights parse(std::string_view text) {
  return parse_token_weights(text, "sft.token_weights", encode);
}

std::string refusal(std::string_view text) {
  try {
    parse(text);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  return "";
}

TEST(TokenWeights, AreReadAsGiven) {
  EXPECT_EQ(parse(""), TokenWeights{});
  EXPECT_EQ(parse("abc=10"), (TokenWeights{{3, 10}}));
  EXPECT_EQ(parse(" <think>=10 , </think>=0.5,x=0"), (TokenWeights{{7, 10}, {8, 0.5}, {1, 0}}));
  EXPECT_EQ(parse(R"("a,b"=2, "="=3,a=bc=4)"), (TokenWeights{{3, 2}, {1, 3}, {4, 4}}));
}

TEST(TokenWeights, ForManyTokensOrNoneAreRefusedByName) {
  EXPECT_NE(refusal("a b=10").find("sft.token_weights: a b is 2 tokens"), std::string::npos);
  EXPECT_NE(refusal("unknown=10").find("unknown is 0 tokens"), std::string::npos);
  EXPECT_NE(refusal("abc=10,xyz=1").find("xyz is given twice"), std::string::npos);
  for (const char* weight : {"-1", "nan", "inf", "1e39", "", "ten"})
    EXPECT_NE(refusal(formatted("abc={}", weight)).find("number of 0 or more"), std::string::npos);
  for (const char* text : {"abc", ",", "=3", "a=1,", "\"a=1", "\"a\"b=1", "\"\"=1"})
    EXPECT_NE(refusal(text).find("WORD=WEIGHT"), std::string::npos) << text;
}

}  // namespace
}  // namespace trireme::data
