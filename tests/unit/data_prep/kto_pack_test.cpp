#include <string>
#include <utility>
#include <vector>

#include "data/order/stream.hpp"
#include "unit/data_prep/small_chats.hpp"

namespace trireme::data_prep {
namespace {

using testing::message;
using testing::repeated;
using testing::talk;

class KtoPack : public testing::ChatPack {
 protected:
  static std::string labeled(const std::string& prompt, const std::string& completion, bool label) {
    return SortedJson{{"prompt", prompt}, {"completion", completion}, {"label", label}}.dump();
  }

  /// Packs one record. Returns the document.
  SortedJson document(const SortedJson& record) {
    EXPECT_EQ(pack_lines("kto", {record.dump()})["documents"], 1) << record;
    return line(0);
  }

  /// Returns the reason why the record is invalid.
  std::string error_of(const SortedJson& record) {
    try {
      pack_lines("kto", {record.dump()});
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  /// Returns the batch of these samples, in file order.
  [[nodiscard]] data::Batch batch_of(const std::vector<std::int64_t>& samples,
                                     std::int64_t seq_len = 64) const {
    const data::SampleSet all(*set_, seq_len);
    return all.make_batch(samples, data::SampleOrder(all.size(), 0, /*shuffle=*/false));
  }

  /// Returns the tokens, or the tokens before targets, of one sequence of a batch.
  static std::vector<std::int64_t> tokens_of(const data::Batch& batch, int sequence, bool targets) {
    std::vector<std::int64_t> tokens;
    for (std::size_t i = 0; i < batch.tokens.size(); ++i) {
      if (batch.sequence_of[i] != sequence) continue;
      if (!targets) tokens.push_back(batch.tokens[i]);
      if (targets && batch.targets[i] != data::kIgnoreTarget) tokens.push_back(batch.targets[i]);
    }
    return tokens;
  }

  /// Returns the ids of a side of document `number`, before or after the prompt.
  std::vector<std::int64_t> part_of(std::uint64_t number, const char* side, bool answer) {
    const SortedJson found = line(number);
    const std::vector<std::int64_t> ids = found[side]["ids"];
    const auto prompt = found["prompt_len"].get<std::ptrdiff_t>();
    return answer ? std::vector(ids.begin() + prompt, ids.end())
                  : std::vector(ids.begin(), ids.begin() + prompt);
  }
};

TEST_F(KtoPack, EveryFormOfARecordBecomesTheSameDocument) {
  const SortedJson expected =
      document({{"prompt", "Why?"}, {"completion", "Yes"}, {"label", true}});
  EXPECT_EQ(set_->manifest().record_format, "kto");
  EXPECT_EQ(trained(expected["desirable"]), "<think>\n\n</think>\n\nYes<|im_end|>");
  EXPECT_EQ(trained(expected["undesirable"]), "");
  EXPECT_EQ(expected["undesirable"]["ids"].size(), expected["prompt_len"]);
  const SortedJson conversation = talk({"Why?", "Yes"});
  const SortedJson shared = {{{"from", "human"}, {"value", "Why?"}},
                             {{"from", "gpt"}, {"value", "Yes"}}};
  const std::vector<SortedJson> records = {
      {{"prompt", {conversation[0]}}, {"completion", {conversation[1]}}, {"label", 1}},
      {{"messages", conversation}, {"label", 1.0}},
      {{"conversations", shared}, {"kto_tag", true}},
      {{"instruction", "Why?"}, {"input", ""}, {"output", "Yes"}, {"kto_tag", true}}};
  for (const SortedJson& record : records) {
    const SortedJson found = document(record);
    EXPECT_EQ(found["desirable"], expected["desirable"]) << record;
    EXPECT_EQ(found["undesirable"], expected["undesirable"]) << record;
  }
}

TEST_F(KtoPack, AnUndesirableAnswerIsNoDesirableOne) {
  const SortedJson found = document({{"prompt", "Why?"}, {"completion", "No"}, {"label", false}});
  EXPECT_EQ(trained(found["desirable"]), "");
  EXPECT_EQ(trained(found["undesirable"]), "<think>\n\n</think>\n\nNo<|im_end|>");
}

TEST_F(KtoPack, InspectShowsTheLabeledAnswerAndItsLength) {
  const SortedJson counts =
      pack_lines("kto", {labeled("Why?", "Yes", true), labeled("Why?", "No, it is not so", false)});
  const std::vector<std::uint64_t> lengths{line(0)["desirable"]["ids"].size(),
                                           line(1)["undesirable"]["ids"].size()};
  EXPECT_EQ(counts["lengths"]["shortest"], lengths[0]);
  EXPECT_EQ(counts["lengths"]["mean"], static_cast<double>(lengths[0] + lengths[1]) / 2);
  const std::string text = inspect_text(*set_);
  EXPECT_NE(text.find("\nanswers         of at most 64 tokens"), std::string::npos) << text;
  EXPECT_NE(text.find("tokens of a document\n"), std::string::npos) << text;
  EXPECT_NE(text.find("--- desirable\n"), std::string::npos) << text;
  for (const char* other : {"--- undesirable", "chosen", "rejected", "of a pair"})
    EXPECT_EQ(text.find(other), std::string::npos) << text;
}

TEST_F(KtoPack, OnlyTheLastAnswerIsTrained) {
  const SortedJson record = {{"messages", talk({"Why?", "Perhaps", "Really?", "Yes"})},
                             {"label", true}};
  pack_lines("kto", {record.dump()}, [](PackConfig& config) { config.seq_len = 128; });
  const SortedJson found = line(0);
  EXPECT_EQ(trained(found["desirable"]), "<think>\n\n</think>\n\nYes<|im_end|>");
}

TEST_F(KtoPack, MalformedRecordsNameTheField) {
  const std::vector<std::pair<SortedJson, std::string>> cases = {
      {{{"prompt", "q"}, {"completion", "a"}, {"label", "good"}},
       "field 'label' must be true (a desirable answer) or false"},
      {{{"prompt", "q"}, {"completion", "a"}, {"label", 0.5}}, "field 'label' must be true"},
      {{{"messages", {message("assistant", "a")}}, {"label", true}},
       "field 'messages' has no message before its answer"},
      {{{"messages", {message("user", "q"), message("assistant", "a"), message("user", "r")}},
        {"label", true}},
       "the last message of field 'messages' must be an assistant message"},
      {{{"prompt", "q"}, {"completion", "a"}},
       "no field 'label'; it has the form prompt-completion, which --kind sft packs"},
      {{{"prompt", "q"}, {"chosen", "a"}, {"rejected", "b"}}, "which --kind dpo packs"}};
  for (const auto& [record, expected] : cases) {
    const std::string told = error_of(record);
    EXPECT_NE(told.find(expected), std::string::npos) << record << "\n" << told;
  }
}

TEST_F(KtoPack, OwnFieldsAndTheFormAreOptions) {
  const std::string line_of_own = R"({"q": "Why?", "a": "Yes", "good": false})";
  pack_lines("kto", {line_of_own},
             [](PackConfig& config) { config.documents.chat.record_fields = "q,a,good"; });
  EXPECT_EQ(trained(line(0)["undesirable"]), "<think>\n\n</think>\n\nYes<|im_end|>");
  pack_lines("kto", {labeled("Why?", "Yes", true)},
             [](PackConfig& config) { config.documents.chat.record_format = "kto"; });
  EXPECT_EQ(set_->num_documents(), 1U);
}

TEST_F(KtoPack, AnAnswerThatIsCutKeepsATarget) {
  const std::string words = repeated("the tree ", 100);
  const SortedJson found = pack_lines(
      "kto", {labeled(words, "Yes", true), labeled("Why?", words, false), labeled("Q", "A", true)});
  EXPECT_EQ(found["documents"], 2);
  EXPECT_EQ(found["dropped"], 1);
  EXPECT_EQ(found["dropped_long"], 1) << "the prompt fills the length";
  EXPECT_EQ(found["cut_answers"], 1);
  EXPECT_EQ(line(1)["undesirable"]["ids"].size(), 64U);
}

TEST_F(KtoPack, TrainsAtAShorterLengthLikeASetOfThatLength) {
  std::vector<std::string> lines;
  for (int i = 0; i < 150; ++i)
    lines.push_back(
        labeled(repeated("a", 1 + i % 7) + "?", repeated("the tree ", i % 9 + 1), i % 3));
  expect_cut_as_packed("kto", lines, {20, 33});
}

TEST_F(KtoPack, ABatchHasOneAnswerOfEachSampleAndTheMismatchedOne) {
  pack_lines("kto", {labeled("Why?", "Yes", true), labeled("Where is it?", "In the garden", false),
                     labeled("Who?", "Nobody", true)});
  const data::Batch batch = batch_of({0, 1, 2});
  ASSERT_TRUE(batch.mismatched);
  EXPECT_EQ(batch.num_pairs, 3);
  EXPECT_EQ(batch.mismatched->num_pairs, 3);
  EXPECT_EQ(batch.mismatched->pair_keys, batch.pair_keys);
  const std::vector<const char*> sides{"desirable", "undesirable", "desirable"};
  for (std::uint64_t i = 0; i < 3; ++i) {
    const int side = i == 1 ? 1 : 0;
    const auto own = static_cast<int>(2 * i) + side;
    const auto other = static_cast<int>(2 * i) + 1 - side;
    std::vector<std::int64_t> expected = part_of(i, sides[i], false);
    const std::vector<std::int64_t> prompt = expected;
    const std::vector<std::int64_t> answer = part_of(i, sides[i], true);
    expected.insert(expected.end(), answer.begin(), answer.end());
    EXPECT_EQ(tokens_of(batch, own, false), expected);
    EXPECT_TRUE(tokens_of(batch, other, false).empty());
    // The document before has the other answer; the first document has that of the last one.
    const std::uint64_t before = (i + 2) % 3;
    const std::vector<std::int64_t> foreign = part_of(before, sides[before], true);
    std::vector<std::int64_t> mixed = prompt;
    mixed.insert(mixed.end(), foreign.begin(), foreign.end());
    EXPECT_EQ(tokens_of(*batch.mismatched, other, false), mixed);
    EXPECT_TRUE(tokens_of(*batch.mismatched, own, false).empty());
    const int own_of_before = static_cast<int>(2 * before) + (before == 1 ? 1 : 0);
    EXPECT_EQ(tokens_of(*batch.mismatched, other, true), tokens_of(batch, own_of_before, true));
  }
}

TEST_F(KtoPack, TheMismatchedAnswerDoesNotDependOnTheBatchOrThePartOfTheSet) {
  std::vector<std::string> lines;
  for (int i = 0; i < 12; ++i)
    lines.push_back(labeled("Question " + std::to_string(i / 2) + "?",
                            "Answer " + std::to_string(i), i % 2 == 0));
  pack_lines("kto", lines, [](PackConfig& config) { config.unit_bytes = 300; });
  EXPECT_GT(set_->num_shards(), 1U);
  const data::Batch whole = batch_of({0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const data::SampleSet part(*set_, data::SampleConfig{.seq_len = 64, .documents = {{6, 12}}});
  for (std::int64_t i = 0; i < 12; ++i) {
    const data::Batch alone = batch_of({i});
    const auto key = whole.pair_keys[static_cast<std::size_t>(i)];
    EXPECT_EQ(alone.pair_keys.front(), key);
    const int side = i % 2 == 0 ? 1 : 0;
    const auto other = static_cast<int>(2 * i) + side;
    EXPECT_EQ(tokens_of(*alone.mismatched, side, false),
              tokens_of(*whole.mismatched, other, false));
    if (i >= 6) {
      EXPECT_EQ(part.pair_key(static_cast<std::uint64_t>(i - 6)), key);
    }
    // Two neighbors share a prompt, so each of them has the answer before both.
    const std::int64_t before = (i / 2 * 2 + 11) % 12;
    const int own_of_before = static_cast<int>(2 * before) + (before % 2 == 0 ? 0 : 1);
    EXPECT_EQ(tokens_of(*whole.mismatched, other, true), tokens_of(whole, own_of_before, true));
  }
}

TEST_F(KtoPack, ABatchWithoutSamplesHasAMismatchedBatchToo) {
  pack_lines("kto", {labeled("Why?", "Yes", true)});
  const data::Batch none = batch_of({data::kNoSample});
  ASSERT_TRUE(none.mismatched);
  EXPECT_EQ(none.mismatched->T, none.T);
  EXPECT_EQ(none.num_pairs, 0);
  // The only document has no other answer than its own.
  const data::Batch one = batch_of({0});
  EXPECT_EQ(tokens_of(*one.mismatched, 1, false), tokens_of(one, 0, false));
}

}  // namespace
}  // namespace trireme::data_prep
