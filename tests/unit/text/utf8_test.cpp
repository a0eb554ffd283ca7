#include "text/unicode/utf8.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "text/unicode/byte_level.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::text {
namespace {

constexpr const char* kBad = "\xEF\xBF\xBD";

std::string lossy(std::string_view bytes) {
  std::string out;
  append_lossy_utf8(bytes, out);
  return out;
}

TEST(Utf8, ReplacesEachMaximalSubpartOnce) {
  EXPECT_EQ(lossy("a\xFF"
                  "b"),
            std::string("a") + kBad + "b");
  EXPECT_EQ(lossy("\xE4\xB8"), kBad);                                  // cut character
  EXPECT_EQ(lossy("\xE4\xB8\xE4\xB8\x96"), std::string(kBad) + "世");  // cut, then a whole one
  EXPECT_EQ(lossy("\xED\xA0\x80"),
            std::string(kBad) + kBad + kBad);              // surrogate: no byte begins a character
  EXPECT_EQ(lossy("\xC0\xAF"), std::string(kBad) + kBad);  // overlong
  EXPECT_EQ(lossy("\xF4\x90\x80\x80"), std::string(kBad) + kBad + kBad + kBad);  // past U+10FFFF
  EXPECT_EQ(lossy("\xF0\x9F\x91"), kBad);
}

TEST(Utf8, FindsTheTailThatMayStillBecomeACharacter) {
  EXPECT_EQ(utf8_incomplete_tail(""), 0U);
  EXPECT_EQ(utf8_incomplete_tail("abc"), 0U);
  EXPECT_EQ(utf8_incomplete_tail("ab\xE4"), 1U);
  EXPECT_EQ(utf8_incomplete_tail("ab\xE4\xB8"), 2U);
  EXPECT_EQ(utf8_incomplete_tail("ab\xF0\x9F\x91"), 3U);
  EXPECT_EQ(utf8_incomplete_tail("\xF0\x9F\x91\x8D"), 0U);
  EXPECT_EQ(utf8_incomplete_tail("\xED\xA0"), 0U);  // can only become a surrogate
  EXPECT_EQ(utf8_incomplete_tail("\x80\x80\x80\x80"), 0U);
}

TEST(Utf8, NamesTheFirstBadByte) {
  try {
    check_utf8("ab世\xFFxyz", "line 7");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_STREQ(error.what(), "line 7: not valid UTF-8 at byte 5");
  }
  EXPECT_THROW(check_utf8("\xED\xA0\x80", "text"), Error);
  EXPECT_NO_THROW(check_utf8(std::string("\0ab", 3), "text"));
}

TEST(Utf8, DecodesEveryScalarValue) {
  for (std::uint32_t c = 0; c < 0x110000; c += c < 0x3000 ? 1 : 97) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    std::string text;
    samples::append_utf8(c, text);
    std::size_t length = 0;
    ASSERT_EQ(utf8_decode(text.data(), length), c);
    ASSERT_EQ(length, text.size());
    ASSERT_TRUE(utf8_step(text, 0).valid) << c;
  }
}

TEST(ByteLevel, IsOneToOneOnAllBytes) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all.push_back(static_cast<char>(byte));

  bool whole = false;
  EXPECT_EQ(from_byte_level(to_byte_level(all), &whole), all);
  EXPECT_TRUE(whole);
  EXPECT_EQ(to_byte_level(" a\n"), "ĠaĊ");
  EXPECT_EQ(from_byte_level("a世", &whole), "a世");
  EXPECT_FALSE(whole);
}

}  // namespace
}  // namespace trireme::text
