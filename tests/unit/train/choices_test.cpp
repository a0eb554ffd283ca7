#include "train/eval/choices.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "core/error.hpp"
#include "unit/text/text_samples.hpp"

namespace trireme::train {
namespace {

using Ids = std::vector<std::uint32_t>;

constexpr text::EncodeOptions kPlain{.add_special_tokens = false};

TEST(Choices, WhiteSpaceAtTheEndOfAContextBelongsToTheEnding) {
  const text::Tokenizer tokenizer = text::samples::small_tokenizer();
  const auto expect = [&](const std::string& context, const std::string& ending,
                          const std::string& cut) {
    const ContextAndEnding pair = encode_pair(tokenizer, 1, context, ending, "here");
    const Ids before = tokenizer.encode(cut, kPlain);
    EXPECT_EQ(pair.context, before) << context;
    const Ids whole = tokenizer.encode(context + ending, kPlain);
    EXPECT_EQ(pair.ending, Ids(whole.begin() + std::ssize(before), whole.end())) << context;
  };
  expect("the other", " world", "the other");
  expect("the other ", "world", "the other");
  expect("the other\t\n ", "world", "the other");
  expect("the other\u00A0\u3000", "world", "the other");  // Python strips these
  expect("the other\u200B", "world", "the other\u200B");  // Python does not strip this
  expect("the re", "turn of the world", "the re");        // joined: "return" is one token
  expect("<|im_start|>user", "<|im_end|>", "<|im_start|>user");
}

TEST(Choices, AnEmptyContextIsThePrefix) {
  const text::Tokenizer tokenizer = text::samples::small_tokenizer();
  const ContextAndEnding none = encode_pair(tokenizer, 1, "", "world", "here");
  EXPECT_EQ(none.context, Ids{1});
  EXPECT_EQ(none.ending, tokenizer.encode("world", kPlain));
  const ContextAndEnding blank = encode_pair(tokenizer, 1, " ", "world", "here");
  EXPECT_EQ(blank.context, Ids{1});
  EXPECT_EQ(blank.ending, tokenizer.encode(" world", kPlain));
}

TEST(Choices, AnEndingOfWhichNothingIsLeftIsBadData) {
  const text::Tokenizer tokenizer = text::samples::small_tokenizer();
  try {
    (void)encode_pair(tokenizer, 1, "the other", "", "items.jsonl:3");
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("items.jsonl:3"), std::string::npos);
  }
}

TEST(Choices, BatchesScoreEndingsAloneAndCutContextsFromTheirBeginning) {
  const std::vector<ContextAndEnding> texts{
      {{1, 2, 3}, {4, 5}}, {{6}, {7}}, {{1, 2, 3, 4}, {5, 6}}};
  const data::Batch batch = batch_of_endings(texts, 4);
  EXPECT_EQ(batch.B, 1);
  EXPECT_EQ(batch.T, 9);
  EXPECT_EQ(batch.tokens, (std::vector<std::int64_t>{1, 2, 3, 4, 6, 2, 3, 4, 5}));
  const std::int64_t no = data::kIgnoreTarget;
  EXPECT_EQ(batch.targets, (std::vector<std::int64_t>{no, no, 4, 5, 7, no, no, 5, 6}));
  EXPECT_EQ(batch.positions, (std::vector<std::int64_t>{0, 1, 2, 3, 0, 0, 1, 2, 3}));
  EXPECT_EQ(batch.segment_bounds, (std::vector<std::int32_t>{0, 4, 5, 9}));
  EXPECT_EQ(batch.num_targets, 5);
  EXPECT_EQ(batch_of_endings(texts, 2).targets, (std::vector<std::int64_t>{4, 5, 7, 5, 6}));
  EXPECT_THROW((void)batch_of_endings(texts, 1), Error);
  EXPECT_EQ(sums_of_endings(texts, std::vector<double>{-1, -2, -4, -8, -16}),
            (std::vector<double>{-3, -4, -24}));
}

TEST(Choices, TheHighestScoreIsChosenPerCharacterToo) {
  const ChoiceItem item{"", {"ab", "世界", "cde", "f"}, 1, ""};
  const ChoiceResult result = choose(item, {-3, -5, -4, -3});
  EXPECT_EQ(result.choice, 0);       // the first of several equal ones
  EXPECT_EQ(result.choice_norm, 2);  // -1.5, -2.5 (2 characters of 6 bytes), -1.33, -3
  EXPECT_EQ(result.scores, (std::vector<double>{-3, -5, -4, -3}));
}

TEST(Choices, BitsPerByteCountTheTextOfTargets) {
  const text::Tokenizer tokenizer = text::samples::small_tokenizer();
  const std::string text = "the other 世界";
  const std::vector<std::int64_t> bytes = bytes_of_tokens(tokenizer);
  std::int64_t target_bytes = 0;
  for (const std::uint32_t id : tokenizer.encode(text, kPlain)) target_bytes += bytes.at(id);
  EXPECT_EQ(target_bytes, std::ssize(text));
  EXPECT_DOUBLE_EQ(bits_per_byte(16 * std::log(2.0), 16), 1);
}

class ChoiceFile : public ::testing::Test {
 protected:
  std::string write(const std::string& content) const {
    std::ofstream(path_) << content;
    return path_;
  }

  std::string problem_of(const std::string& content) const {
    try {
      (void)read_choices(write(content));
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      return error.what();
    }
    return "accepted";
  }

  std::string path_ = ::testing::TempDir() + "trireme-choices-" + std::to_string(::getpid());

  ~ChoiceFile() override { (void)std::remove(path_.c_str()); }
};

TEST_F(ChoiceFile, ItemsComeInOrder) {
  const auto items = read_choices(
      write("{\"ctx\": \"a \", \"endings\": [\"b\", \"c\"], \"label\": 1, \"id\": 7}\r\n\n"
            "{\"ctx\": \"\", \"endings\": [\"d\"], \"label\": 0}"));
  ASSERT_EQ(items.size(), 2U);
  EXPECT_EQ(items[0].context, "a ");
  EXPECT_EQ(items[0].endings, (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(items[0].label, 1);
  EXPECT_EQ(items[1].where, path_ + ":3");
}

TEST_F(ChoiceFile, InvalidItemsAreReportedByLine) {
  const std::string good = "{\"ctx\": \"\", \"endings\": [\"d\"], \"label\": 0}\n";
  for (const std::string bad :
       {"[]", "{\"endings\": [\"d\"], \"label\": 0}", "{\"ctx\": \"\", \"label\": 0}",
        "{\"ctx\": \"\", \"endings\": [], \"label\": 0}",
        "{\"ctx\": \"\", \"endings\": [\"\"], \"label\": 0}",
        "{\"ctx\": \"\", \"endings\": [3], \"label\": 0}",
        "{\"ctx\": \"\", \"endings\": [\"d\"], \"label\": 1}",
        "{\"ctx\": \"\", \"endings\": [\"d\"], \"label\": -1}",
        "{\"ctx\": \"\", \"endings\": [\"d\"]}", "{"}) {
    EXPECT_NE(problem_of(good + bad).find(path_ + ":2"), std::string::npos)
        << bad << ": " << problem_of(good + bad);
  }
  EXPECT_NE(problem_of("\n").find("holds no item"), std::string::npos);
}

}  // namespace
}  // namespace trireme::train
