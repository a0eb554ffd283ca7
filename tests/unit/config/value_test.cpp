#include "config/value.hpp"

#include <gtest/gtest.h>

#include <clocale>
#include <cmath>
#include <cstring>
#include <limits>

#include "config/toml_file.hpp"
#include "core/error.hpp"
#include "core/philox.hpp"

namespace trireme::config {
namespace {

TEST(Value, ReadsNumbersAsTheCommandLineWritesThem) {
  double number = 0;
  std::int64_t integer = 0;

  EXPECT_EQ(assign_text(&number, "1e-3"), "");
  EXPECT_EQ(number, 1e-3);
  EXPECT_EQ(assign_text(&number, "7"), "");
  EXPECT_EQ(number, 7.0);
  EXPECT_EQ(assign_text(&number, "+.5"), "");
  EXPECT_EQ(number, 0.5);
  EXPECT_EQ(assign_text(&integer, "-9223372036854775808"), "");
  EXPECT_EQ(integer, std::numeric_limits<std::int64_t>::min());
}

TEST(Value, TextIsWrittenUnchanged) {
  std::string text = ".a-b\\c~d^e`f|g h";

  EXPECT_EQ(value_text(&text), ".a-b\\c~d^e`f|g h");
}

TEST(Value, RefusesWhatIsNotAFiniteNumberAndKeepsTheOldValue) {
  double number = 4.0;
  std::int64_t integer = 4;
  for (const char* text : {"", " 1", "1 ", "1,5", "0x10", "inf", "-inf", "nan", "1e999", "1e-400",
                           "+-1", "--1", "1e"}) {
    EXPECT_NE(assign_text(&number, text), "") << text;
  }
  for (const char* text : {"", "1.0", "1e3", "9223372036854775808", "0x10", "1_000", "4k", "+-1"}) {
    EXPECT_NE(assign_text(&integer, text), "") << text;
  }

  EXPECT_EQ(number, 4.0);
  EXPECT_EQ(integer, 4);
}

TEST(Value, TakesOnlyTrueAndFalseForABoolean) {
  bool value = false;

  EXPECT_EQ(assign_text(&value, "true"), "");
  EXPECT_TRUE(value);
  for (const char* text : {"1", "yes", "True", "", "on"})
    EXPECT_NE(assign_text(&value, text), "") << text;
  EXPECT_TRUE(value);
}

TEST(Value, RefusesTextThatIsNotUtf8BecauseTomlCouldNotHoldIt) {
  std::string value = "old";
  for (const char* text : {"\xff", "a\x80", "\xc0\xaf", "\xed\xa0\x80", "\xf5\x80\x80\x80",
                           "\xe4\xbd", "\xf0\x80\x80\x80"}) {
    EXPECT_NE(assign_text(&value, text), "");
  }

  EXPECT_EQ(value, "old");
  EXPECT_EQ(assign_text(&value, "\xe4\xbd\xa0\xe5\xa5\xbd \xf0\x9f\x9a\xa3 \xc3\xa9"), "");
}

TEST(Value, IgnoresTheLocale) {
  const char* german = std::setlocale(LC_ALL, "de_DE.UTF-8");  // if it is installed
  double number = 0;

  EXPECT_EQ(assign_text(&number, "0.25"), "") << (german == nullptr ? "C locale" : german);
  EXPECT_EQ(value_toml(&number), "0.25");
  std::setlocale(LC_ALL, "C");
}

/// Returns the value of `key = <literal>` after it was written as TOML and read back.
template <class T>
T through_toml(T value) {
  const std::vector<TomlEntry> entries =
      parse_toml(formatted("key = {}\n", value_toml(&value)), "test");
  return std::get<T>(entries.at(0).value);
}

TEST(Value, DoublesSurviveTomlBitForBit) {
  std::vector<double> values{
      0.0, -0.0, 1.0, 100.0, 1e-5, 1e20, 1e22, 1e300, 0.1, 3e-4, 123456789012345680.0};
  values.push_back(std::numeric_limits<double>::denorm_min());
  values.push_back(std::numeric_limits<double>::max());
  values.push_back(std::numeric_limits<double>::lowest());
  for (std::uint64_t i = 0; i < 2000; ++i) {  // any finite bit pattern
    const PhiloxWords words = philox4x32(1, i, 0);
    const auto value = __builtin_bit_cast(double, (std::uint64_t{words[0]} << 32) | words[1]);
    if (std::isfinite(value)) values.push_back(value);
  }

  for (double value : values) {
    const double back = through_toml(value);
    EXPECT_EQ(std::memcmp(&back, &value, sizeof value), 0) << value_toml(&value);
  }
}

TEST(Value, IntegersAndTextsSurviveToml) {
  for (const std::int64_t value :
       {std::int64_t{0}, std::int64_t{-1}, std::numeric_limits<std::int64_t>::max(),
        std::numeric_limits<std::int64_t>::min()}) {
    EXPECT_EQ(through_toml(value), value);
  }
  std::string all;
  for (int c = 0; c < 128; ++c) all += static_cast<char>(c);
  for (const std::string& value : {std::string(), all, std::string("a \"b\" \\ # c\n\t\r"),
                                   std::string("'''"), std::string("\xe4\xbd\xa0\xe5\xa5\xbd")}) {
    EXPECT_EQ(through_toml(value), value);
  }
}

}  // namespace
}  // namespace trireme::config
