#include "core/number.hpp"

#include <gtest/gtest.h>

#include <cmath>

#include "core/rounded_text.hpp"

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

TEST(Number, ARoundedTextHasFewDigits) {
  EXPECT_EQ(rounded_text(7.7657938889884015), "7.766");
  EXPECT_EQ(rounded_text(2.9999999999999997e-05), "3e-05");
  EXPECT_EQ(rounded_text(7.7657938889884015, 2), "7.8");
  EXPECT_EQ(rounded_text(0.1), "0.1");
}

TEST(Number, SizesAreForPeople) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.0 kB");
  EXPECT_EQ(format_bytes(1234567), "1.2 MB");
  EXPECT_EQ(format_bytes(2.5e15), "2500.0 TB");
}

TEST(Number, DurationsAreForPeople) {
  EXPECT_EQ(format_duration(0), "0s");
  EXPECT_EQ(format_duration(59.4), "59s");
  EXPECT_EQ(format_duration(59.6), "1m00s");
  EXPECT_EQ(format_duration(75), "1m15s");
  EXPECT_EQ(format_duration(3723), "1h02m");
  EXPECT_EQ(format_duration(360000), "100h00m");
}

}  // namespace
}  // namespace trireme
