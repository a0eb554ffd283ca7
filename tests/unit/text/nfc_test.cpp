#include "text/unicode/nfc.hpp"

#include <gtest/gtest.h>

#include "text/unicode/letters.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::text {
namespace {

TEST(Nfc, JoinsAndOrders) {
  EXPECT_EQ(to_nfc(""), "");
  EXPECT_EQ(to_nfc("plain ASCII, 世界"), "plain ASCII, 世界");
  EXPECT_EQ(to_nfc("e\u0301"), "é");
  EXPECT_EQ(to_nfc("\u212B"), "Å");                    // the Angstrom sign is a letter
  EXPECT_EQ(to_nfc("a\u0301\u0323"), "\u1EA1\u0301");  // marks below come before marks above
  EXPECT_EQ(to_nfc("a\u0301\u0301"), "\u00E1\u0301");  // the second mark does not block the first
  EXPECT_EQ(to_nfc("\u0301e"), "\u0301e");             // a mark without a letter
  EXPECT_EQ(to_nfc("é\u0323x"), "\u1EB9\u0301x");      // a composed letter is decomposed again
  EXPECT_EQ(to_nfc("\u0344"), "\u0308\u0301");         // never the result of a composition
  EXPECT_EQ(to_nfc("\u0958"), "\u0915\u093C");         // excluded from composition
  EXPECT_EQ(to_nfc("x\u0338e\u0301y"), "x\u0338éy");
}

TEST(Nfc, ComputesHangul) {
  EXPECT_EQ(to_nfc("\u1100\u1161"), "가");
  EXPECT_EQ(to_nfc("\u1100\u1161\u11A8"), "각");
  EXPECT_EQ(to_nfc("가\u11A8"), "각");
  EXPECT_EQ(to_nfc("각\u11A8"), "각\u11A8");
  EXPECT_EQ(to_nfc("\u1100\u1100\u1161"), "\u1100가");
  EXPECT_EQ(to_nfc("가\u11A7"), "가\u11A7");  // U+11A7 is not a joining character
}

TEST(Nfkc, ReplacesCompatibleFormsBeforeItJoins) {
  EXPECT_EQ(to_nfkc(""), "");
  EXPECT_EQ(to_nfkc("plain ASCII, 世界 é"), "plain ASCII, 世界 é");
  EXPECT_EQ(to_nfkc("\uFB01x\u00A0\u00BD"), "fix 1\u20442");  // ligature, space, fraction
  EXPECT_EQ(to_nfkc("\uFF21\uFF42\u3000"), "Ab ");
  EXPECT_EQ(to_nfkc("e\u0301\u212B"), "éÅ");
  EXPECT_EQ(to_nfkc("\uFF21\u030A"), "Å");  // the wide letter joins with the mark
  EXPECT_EQ(to_nfkc("\uFF76\uFF9E"), "\u30AC");
  EXPECT_EQ(to_nfkc("\u3131\u314F"), "가");  // compatible letters are joined
  EXPECT_EQ(to_nfkc("\uFDFA").size(), 33U);
}

TEST(Nfd, DecomposesAndOrders) {
  EXPECT_EQ(to_nfd(""), "");
  EXPECT_EQ(to_nfd("plain ASCII, 世界"), "plain ASCII, 世界");
  EXPECT_EQ(to_nfd("é"), "e\u0301");
  EXPECT_EQ(to_nfd("á\u0323"), "a\u0323\u0301");
  EXPECT_EQ(to_nfd("각"), "\u1100\u1161\u11A8");
  EXPECT_EQ(to_nfd("\uFB01"), "\uFB01");
  EXPECT_EQ(to_nfkd("\uFB01é\uFF21\u030A"), "fie\u0301A\u030A");
  EXPECT_EQ(to_nfkd("a\u0301\uFF9E\u0323"), "a\u3099\u0323\u0301");  // classes 8, 220 and 230
}

TEST(Letters, BecomeLowerCaseOneByOne) {
  EXPECT_EQ(lowercased(""), "");
  EXPECT_EQ(lowercased("Straße ÄÖ 世界 \U00010400"), "straße äö 世界 \U00010428");
  EXPECT_EQ(lowercased("\u0130"), "i\u0307");        // one letter becomes two characters
  EXPECT_EQ(lowercased("ΣΑΣ"), "σασ");               // the form at the end of a word is not used
  EXPECT_EQ(lowercased("\u01C5\u1E9E"), "\u01C6ß");  // title case, capital sharp s
}

TEST(Letters, LoseMarks) {
  EXPECT_EQ(without_accents(""), "");
  EXPECT_EQ(without_accents("e\u0301a\u0323\u0301é"), "eaé");  // é is one character
  EXPECT_EQ(without_accents("\u0915\u0903\u20DD"), "\u0915");  // spacing and enclosing marks
  EXPECT_EQ(without_accents("\u0300"), "");
  EXPECT_EQ(without_accents("x\u036Fy\u0370"), "xy\u0370");  // the end of a range
}

TEST(Nfc, KeepsWhatUnicode12DoesNotJoin) {
  EXPECT_EQ(to_nfc("\U00011935\U00011930"), "\U00011935\U00011930");
  EXPECT_EQ(to_nfc("\U00011099\U000110BA"), "\U0001109A");
}

TEST(Nfc, QuickCheckNeverPassesWhatWouldChange) {
  samples::Rng rng(5);
  int sure = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text;
    for (std::uint32_t n = rng() % 6; n > 0; --n) {
      std::uint32_t c = rng() % (rng() % 2 == 0 ? 0x400 : 0x12000);
      if (c >= 0xD800 && c <= 0xDFFF) c = 0x301;
      samples::append_utf8(c, text);
    }
    const std::string normal = to_nfc(text);
    ASSERT_EQ(to_nfc(normal), normal) << text;
    if (!surely_nfc(text)) continue;
    ASSERT_EQ(normal, text);
    ++sure;
  }
  EXPECT_GT(sure, 10000);
}

}  // namespace
}  // namespace trireme::text
