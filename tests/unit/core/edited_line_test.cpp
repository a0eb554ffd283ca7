#include "core/terminal/edited_line.hpp"

#include <gtest/gtest.h>

#include "core/terminal/terminal.hpp"

namespace trireme {
namespace {

class EditedLineTest : public testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(use_utf8_locale()); }

  EditedLine line_;
};

TEST_F(EditedLineTest, EditsWholeCharacters) {
  line_.insert("a中e\u0301");  // the last is a letter and its accent
  line_.erase_before();
  EXPECT_EQ(line_.text(), "a中");
  line_.left();
  line_.insert("好");
  EXPECT_EQ(line_.text(), "a好中");
  line_.erase_at();
  EXPECT_EQ(line_.text(), "a好");
}

TEST_F(EditedLineTest, AMarkThatComesAloneStandsOnTheCharacterBefore) {
  line_.insert("e");
  line_.insert("\u0301");
  line_.left();
  line_.insert("x");

  EXPECT_EQ(line_.text(), "xe\u0301");
}

TEST_F(EditedLineTest, DropsBytesThatAreNoUtf8) {
  line_.insert("a\xff\xe4\xb8z");

  EXPECT_EQ(line_.text(), "az");
}

TEST_F(EditedLineTest, AtEitherEndKeysDoNothing) {
  line_.left();
  line_.right();
  line_.erase_at();
  line_.erase_before();
  line_.erase_word_before();
  EXPECT_TRUE(line_.empty());
}

TEST_F(EditedLineTest, ErasesWordsAndRests) {
  line_.set("one two  three");
  line_.erase_word_before();
  EXPECT_EQ(line_.text(), "one two  ");
  line_.erase_word_before();
  EXPECT_EQ(line_.text(), "one ");
  line_.to_start();
  line_.right();
  line_.erase_to_end();
  EXPECT_EQ(line_.text(), "o");
  line_.erase_to_start();
  EXPECT_TRUE(line_.empty());
}

TEST_F(EditedLineTest, AWideCharacterDoesNotSplitAcrossRows) {
  line_.set("abc中");  // "> abc" leaves one column of six: the wide one begins the next row

  EXPECT_EQ(line_.redraw("> ", 6), "\r\x1b[J> abc中\r\x1b[2C");
  line_.left();  // behind "c", where one column is left
  EXPECT_EQ(line_.redraw("> ", 6), "\r\x1b[1A\x1b[J> abc中\x1b[1A\r\x1b[5C");
}

TEST_F(EditedLineTest, AFullRowEndsInTheNext) {
  line_.set("abcd");

  EXPECT_EQ(line_.redraw("> ", 6), "\r\x1b[J> abcd\r\n\r");
  line_.erase_before();
  EXPECT_EQ(line_.redraw("> ", 6), "\r\x1b[1A\x1b[J> abc\r\x1b[5C");
}

TEST_F(EditedLineTest, ShowsControlCharactersAsText) {
  line_.set("a\x1b[2J\nb");

  EXPECT_EQ(line_.redraw("> ", 80), "\r\x1b[J> a^[[2J^Jb\r\x1b[11C");
}

}  // namespace
}  // namespace trireme
