#include <algorithm>
#include <set>

#include "core/error.hpp"
#include "data/order/length_warning.hpp"
#include "data/sequences/length_loss.hpp"
#include "unit/data/pair_sets.hpp"

namespace trireme::testing {
namespace {

class CutPairs : public PairSet, public ::testing::WithParamInterface<const char*> {};

INSTANTIATE_TEST_SUITE_P(Rules, CutPairs, ::testing::Values(kOldRule, "end", "prompt", "drop"));

TEST_P(CutPairs, BatchesAreThePairsCutTokenByTokenAtAnyLength) {
  const std::string rule = GetParam();
  write_masked_set(at("cut"), "dpo", pairs_, kLongestSide, config_of(rule));
  const data::TokenSet set = data::TokenSet::open(at("cut"));
  for (std::int64_t seq_len = 2; seq_len <= kLongestSide + 3; ++seq_len) {
    const std::int64_t row_multiple = 1 + seq_len % 9;
    const auto kept = kept_pairs(pairs_, seq_len, rule);
    if (kept.empty()) continue;
    const data::SampleSet samples(set, {.seq_len = seq_len, .row_multiple = row_multiple});
    const std::vector<std::pair<std::int64_t, MaskedPair>> all(kept.begin(), kept.end());
    ASSERT_EQ(samples.size(), all.size()) << seq_len;
    const data::SampleOrder order(all.size(), 9);
    for (const std::int64_t size : {1, 3, 8}) {
      for (std::int64_t first = 0; first < std::ssize(all); first += size) {
        std::vector<std::int64_t> indices;
        std::vector<std::pair<std::int64_t, MaskedPair>> drawn;
        std::int64_t targets = 0;
        for (std::int64_t i = first; i < first + size; ++i) {
          const auto position = order.locate(static_cast<std::uint64_t>(i)).position;
          indices.push_back(i);
          drawn.push_back(all[position]);
          targets += samples.num_targets(position);
        }

        const data::Batch batch = samples.make_batch(indices, order);

        expect_equal(batch, expected_batch(drawn, row_multiple));
        ASSERT_FALSE(HasFatalFailure()) << "length " << seq_len;
        ASSERT_EQ(batch.sample_indices, indices);
        ASSERT_EQ(batch.num_targets, targets);
        ASSERT_EQ(batch.T % row_multiple, 0);
      }
    }
  }
}

std::uint64_t count_targets(const MaskedPair& pair) {
  std::uint64_t sum = 0;
  for (const MaskedTokens* side : {&pair.chosen, &pair.rejected})
    sum += static_cast<std::uint64_t>(std::count(side->mask.begin(), side->mask.end(), true));
  return sum;
}

TEST_P(CutPairs, LossesOfAShorterLengthAreCountedPairByPair) {
  const std::string rule = GetParam();
  write_masked_set(at("cut"), "dpo", pairs_, kLongestSide, config_of(rule));
  const data::TokenSet set = data::TokenSet::open(at("cut"));
  EXPECT_FALSE(data::length_loss(set, kLongestSide, {0, 82}).has_value());
  for (const std::int64_t seq_len : {3, 9, 17, 39}) {
    for (const data::DocumentRange range : {data::DocumentRange{0, 82}, {7, 51}, {60, 60}}) {
      data::LengthTruncation expected{.documents = range.end - range.begin};
      const auto kept = kept_pairs(pairs_, seq_len, rule);
      for (const auto& [document, whole] : kept_pairs(pairs_, kLongestSide, rule)) {
        const auto at = static_cast<std::uint64_t>(document);
        if (at < range.begin || at >= range.end) continue;
        const auto left = kept.find(document);
        const bool dropped = left == kept.end();
        expected.dropped += dropped ? 1 : 0;
        expected.targets += count_targets(whole);
        expected.lost_targets += count_targets(whole) - (dropped ? 0 : count_targets(left->second));
        if (dropped) continue;
        const MaskedPair& pair = left->second;
        const std::uint32_t begin = whole.prompt - pair.prompt;
        const bool answer = pair.chosen.ids.size() + begin < whole.chosen.ids.size() ||
                            pair.rejected.ids.size() + begin < whole.rejected.ids.size();
        expected.cut_prompts += begin != 0 ? 1 : 0;
        expected.cut_answers += answer ? 1 : 0;
        expected.truncated += begin != 0 || answer ? 1 : 0;
      }

      const data::LengthTruncation found = data::length_loss(set, seq_len, range).value();

      EXPECT_EQ(found.documents, expected.documents);
      EXPECT_EQ(found.dropped, expected.dropped) << seq_len;
      EXPECT_EQ(found.truncated, expected.truncated) << seq_len;
      EXPECT_EQ(found.cut_prompts, expected.cut_prompts);
      EXPECT_EQ(found.cut_answers, expected.cut_answers);
      EXPECT_EQ(found.targets, expected.targets);
      EXPECT_EQ(found.lost_targets, expected.lost_targets) << seq_len;
    }
  }
}

TEST_F(PairSet, AShorterLengthIsWarnedOfOnlyWhereSomethingIsLost) {
  write_masked_set(at("cut"), "dpo", pairs_, kLongestSide, config_of("end"));
  const data::TokenSet set = data::TokenSet::open(at("cut"));
  const data::SampleSet part(set, {.seq_len = 9, .documents = data::DocumentRange{7, 51}});
  const data::LengthTruncation loss = data::length_loss(set, 9, {7, 51}).value();

  EXPECT_EQ(data::length_warning(data::SampleSet(set, kLongestSide), "train.seq_len ="), "");
  EXPECT_EQ(data::length_warning(data::SampleSet(set, kLongestSide + 5), "train.seq_len ="), "");
  EXPECT_EQ(data::length_warning(part, "train.seq_len ="),
            formatted("{}, documents 7 to 51 (data.split): train.seq_len = 9 is below the packed "
                      "length 40. Of 44 pairs, {} are dropped (too long, or no target is left) and "
                      "{} are cut (0 lose the beginning of the prompt, in {} a side loses its "
                      "end). {} of {} target tokens are lost. A longer length keeps them.",
                      at("cut").string(), loss.dropped, loss.truncated, loss.truncated,
                      loss.lost_targets, loss.targets));
}

TEST(LengthWarning, IsEmptyForPromptsBecauseARunUsesThemWhole) {
  const testing::TestDirectory folder("prompts");
  testing::MaskedShard shard("rl");
  shard.add(testing::MaskedTokens{{1, 2, 3}, {false, false, false}});
  shard.content.documents.targets.records.add("{}");
  shard.write(folder.path(), 0, 1);
  testing::write_manifest(folder.path(), 1, "rl", 40);
  const data::TokenSet set = data::TokenSet::open(folder.path());

  EXPECT_EQ(data::length_warning(data::SampleSet(set, 9), "train.seq_len ="), "");
}

TEST_F(PairSet, AnswersOnlyLeavesThePromptWithoutTargets) {
  const data::TokenSet set = data::TokenSet::open(at("a"));
  for (const std::int64_t seq_len : {std::int64_t{9}, kLongestSide}) {
    const data::SampleSet samples(set, {.seq_len = seq_len, .answers_only = true});
    const auto kept = kept_pairs(pairs_, seq_len);
    ASSERT_EQ(samples.size(), kept.size());
    std::uint64_t position = 0;
    bool any = false;
    for (auto [document, pair] : kept) {
      for (MaskedTokens* side : {&pair.chosen, &pair.rejected}) {
        for (std::size_t i = 0; i < std::min<std::size_t>(pair.prompt, side->mask.size()); ++i) {
          any = any || side->mask[i];
          side->mask[i] = false;
        }
      }
      const std::vector<std::int64_t> index{static_cast<std::int64_t>(position)};

      const data::Batch batch =
          samples.make_batch(index, data::SampleOrder(samples.size(), 0, false));

      expect_equal(batch, expected_batch({{document, pair}}, 1));
      EXPECT_EQ(samples.num_targets(position), batch.num_targets);
      ++position;
    }
    EXPECT_TRUE(any);
  }
}

TEST_F(PairSet, AKeyNamesTheSetTheLengthAndThePairsTokensAndTargets) {
  const PairShards copy = pairs_;
  PairShards changed = pairs_;
  changed[0][5].chosen.ids.back() ^= 1;
  write_masked_set(at("copy"), "dpo", copy, kLongestSide);
  write_masked_set(at("changed"), "dpo", changed, kLongestSide);
  const data::TokenSet set = data::TokenSet::open(at("a"));
  const data::TokenSet same = data::TokenSet::open(at("copy"));
  const data::TokenSet other = data::TokenSet::open(at("changed"));
  const data::SampleSet samples(set, kLongestSide);
  const data::SampleSet answers(set, {.seq_len = kLongestSide, .answers_only = true});

  std::set<std::uint64_t> keys;
  std::size_t masked = 0;
  for (std::uint64_t i = 0; i < samples.size(); ++i) {
    const std::uint64_t key = samples.pair_key(i);
    keys.insert(key);
    EXPECT_EQ(data::SampleSet(same, kLongestSide).pair_key(i), key);
    EXPECT_NE(data::SampleSet(other, kLongestSide).pair_key(i), key) << "another token set";
    EXPECT_NE(data::SampleSet(set, kLongestSide + 1).pair_key(i), key) << "another length";
    masked += answers.pair_key(i) != key ? 1U : 0U;
  }
  EXPECT_EQ(keys.size(), samples.size());
  EXPECT_GT(masked, 10U) << "other targets";
  EXPECT_LT(masked, samples.size()) << "some pairs have no target in the prompt";
  const data::Batch batch = samples.make_batch(std::vector<std::int64_t>{4, data::kNoSample, 2},
                                               data::SampleOrder(samples.size(), 0, false));
  EXPECT_EQ(batch.pair_keys,
            (std::vector<std::uint64_t>{samples.pair_key(4), samples.pair_key(2)}));
}

TEST_F(PairSet, AnUnknownCutRuleIsBadData) {
  write_masked_set(at("rule"), "dpo", pairs_, kLongestSide, config_of("middle"));
  const data::TokenSet set = data::TokenSet::open(at("rule"));
  try {
    const data::SampleSet samples(set, kLongestSide);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("cut_pairs is middle"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::testing
