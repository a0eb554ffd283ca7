#include "core/number.hpp"

#include <gtest/gtest.h>

#include <cmath>

namespace trireme {
namespace {

TEST(Number, TextIsTheShortestThatReadsBack) {
  EXPECT_EQ(number_text(0.1), "0.1");
  EXPECT_EQ(number_text(100.0), "100");
  EXPECT_EQ(number_text(1.0 / 3.0), "0.3333333333333333");
  EXPECT_EQ(number_text(-0.0), "-0");
  EXPECT_EQ(number_text(5e-324), "5e-324");
}

TEST(Number, ParsesTheWholeTextOrNothing) {
  EXPECT_EQ(parse_number("+1e-3"), 1e-3);
  EXPECT_EQ(parse_integer("+12"), 12);
  EXPECT_EQ(parse_integer("-12"), -12);
  EXPECT_FALSE(parse_number("1e-3x"));
  EXPECT_FALSE(parse_number("nan"));
  EXPECT_FALSE(parse_number("1e999"));
  EXPECT_FALSE(parse_integer("+-1"));
  EXPECT_FALSE(parse_integer("+"));
  EXPECT_FALSE(parse_integer("9223372036854775808"));
}

}  // namespace
}  // namespace trireme
