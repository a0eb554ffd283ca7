#include "reward/python_text.hpp"

#include <gtest/gtest.h>

namespace trireme::reward {
namespace {

using Parts = std::vector<std::string_view>;

TEST(PythonText, StripsEveryKindOfWhiteSpaceAtBothEnds) {
  EXPECT_EQ(stripped(" \t\n a b \x1c\u3000\u00a0"), "a b");
  EXPECT_EQ(stripped("\u2003\x85x"), "\x85x") << "a byte that is not UTF-8 is no white space";
  EXPECT_EQ(stripped(" \n"), "");
  EXPECT_EQ(stripped(""), "");
}

TEST(PythonText, CountsCharactersNotBytes) {
  EXPECT_EQ(num_characters("a\u00e4\u4f60\U0001f600"), 4U);
  EXPECT_EQ(num_characters("\xff\xc3"), 2U);
  EXPECT_EQ(num_characters(""), 0U);
}

TEST(PythonText, LowersLettersOfAllScripts) {
  EXPECT_EQ(lower("ABC xyz 12"), "abc xyz 12");
  EXPECT_EQ(lower("\u00c4\u0130\u0178\u0394\u0416\u1e9e"), "\u00e4i\u0307\u00ff\u03b4\u0436\u00df");
  EXPECT_EQ(lower("\U00010400\xff"), "\U00010428\xff");
  EXPECT_EQ(lower("\u0101\u0100"), "\u0101\u0101") << "every second character is a capital";
}

TEST(PythonText, SplitsWordsAndSigns) {
  EXPECT_EQ(words_and_signs("don't stop_1, \u4f60\u597d!!"),
            (Parts{"don", "'", "t", "stop_1", ",", "\u4f60\u597d", "!", "!"}));
  EXPECT_EQ(words_and_signs(" \n"), Parts{});
}

TEST(PythonText, FindsNumbersThatTouchNoWord) {
  EXPECT_EQ(numbers_in("12, -3.5 and +4"), (std::vector<double>{12, -3.5, 4}));
  EXPECT_EQ(numbers_in("10-5"), (std::vector<double>{10, 5}));
  EXPECT_EQ(numbers_in("3. 1.2.3 x4 5y .6 7_ \u00e48"), std::vector<double>{});
  EXPECT_EQ(numbers_in("+-2 (9)"), (std::vector<double>{-2, 9}));
  EXPECT_EQ(numbers_in(std::string(400, '9')), std::vector<double>{}) << "too large for a double";
}

TEST(PythonText, CountsOccurrencesWithoutOverlap) {
  EXPECT_EQ(count_of("aaaaa", "aa"), 2U);
  EXPECT_EQ(count_of("", "aa"), 0U);
}

}  // namespace
}  // namespace trireme::reward
