#include <map>
#include <numeric>

#include "core/error.hpp"
#include "data/loader.hpp"
#include "unit/data/pair_sets.hpp"

namespace trireme::testing {
namespace {

TEST_F(PairSet, APartOfASetHasOnlyItsPairs) {
  const data::TokenSet set = data::TokenSet::open(at("a"));
  for (const std::int64_t seq_len : {std::int64_t{9}, kLongestSide}) {
    for (const data::DocumentRange range :
         {data::DocumentRange{0, 50}, {7, 51}, {49, 54}, {60, 82}}) {
      const data::SampleSet samples(set,
                                    {.seq_len = seq_len, .documents = range, .first_record = 1000});
      auto kept = kept_pairs(pairs_, seq_len);
      std::vector<std::pair<std::int64_t, MaskedPair>> expected;
      for (const auto& [document, pair] : kept) {
        const auto at = static_cast<std::uint64_t>(document);
        if (at >= range.begin && at < range.end) expected.emplace_back(1000 + document, pair);
      }
      std::vector<std::int64_t> indices(samples.size());
      std::iota(indices.begin(), indices.end(), 0);

      const data::Batch batch =
          samples.make_batch(indices, data::SampleOrder(samples.size(), 0, false));

      expect_equal(batch, expected_batch(expected, 1));
    }
  }
}

TEST_F(PairSet, NoSampleIsNoPair) {
  const data::TokenSet set = data::TokenSet::open(at("a"));
  const data::SampleSet samples(set, {.seq_len = kLongestSide, .row_multiple = 8});
  const data::SampleOrder order(samples.size(), 0, false);
  const auto kept = kept_pairs(pairs_, kLongestSide);

  expect_equal(
      samples.make_batch(std::vector<std::int64_t>{data::kNoSample, 0, data::kNoSample}, order),
      expected_batch({*kept.begin()}, 8));
  const data::Batch none = samples.make_batch(std::vector<std::int64_t>{data::kNoSample}, order);
  expect_equal(none, expected_batch({}, 8));
  EXPECT_EQ(none.T, 8);
  EXPECT_TRUE(none.sample_indices.empty());
}

/// Returns the pair of each global sample, for `updates` updates over all ranks.
using Seen = std::map<std::int64_t, std::vector<std::int64_t>>;

void see(const data::Batch& batch, Seen& seen) {
  for (std::int64_t pair = 0; pair < batch.num_pairs; ++pair) {
    const auto side = static_cast<std::size_t>(2 * pair);
    const auto index = static_cast<std::size_t>(pair);
    std::vector<std::int64_t> held(batch.tokens.begin() + batch.segment_bounds[side],
                                   batch.tokens.begin() + batch.segment_bounds[side + 2]);
    held.push_back(batch.pair_records[index]);
    ASSERT_TRUE(seen.emplace(batch.sample_indices[index], held).second) << "one pair twice";
  }
}

TEST_F(PairSet, AnyNumberOfRanksAndAResumeSeeTheSamePairs) {
  write_masked_set(at("b"), "dpo", random_pairs({31}, 8), kLongestSide);
  const std::string plan = "0.7 $a + 0.3 $b; from 8 at 11: 1 $a + 1 $b; from 12 at 30: 1 $a";
  const data::SampleStream whole = data::SampleStream::open(config(plan));
  EXPECT_TRUE(whole.samples_are_pairs());
  constexpr std::int64_t kSteps = 20;
  Seen expected;
  {
    data::DataLoader loader(whole, {.micro_batch = 12, .global_batch = 12});
    for (std::int64_t step = 0; step < kSteps; ++step) {
      const data::Batch batch = loader.next();
      ASSERT_EQ(batch.update_samples, 12);
      see(batch, expected);
    }
  }
  for (const int size : {1, 2, 3, 6}) {
    for (const std::int64_t stop : {0, 5, 9, 13}) {
      const data::SampleStream resumed = data::SampleStream::open(config(plan));
      resumed.check_state(whole.state(stop * 12), stop * 12, "checkpoint");
      Seen rest;
      for (int rank = 0; rank < size; ++rank) {
        data::DataLoader loader(resumed, {.micro_batch = 2,
                                          .global_batch = 12,
                                          .rank = rank,
                                          .size = size,
                                          .next_sample = stop * 12});
        for (std::int64_t i = stop * loader.micro_steps(); i < kSteps * loader.micro_steps(); ++i) {
          const data::Batch batch = loader.next();
          ASSERT_EQ(batch.num_pairs, 2);
          ASSERT_EQ(batch.update_samples, 12);
          ASSERT_EQ(batch.T % 4, 0);
          see(batch, rest);
        }
      }
      ASSERT_EQ(rest, Seen(expected.lower_bound(stop * 12), expected.end()));
    }
  }
}

TEST_F(PairSet, AtAnotherLengthTheEpochContinuesWithTheOtherPairs) {
  const data::SampleStream stream =
      data::SampleStream::open(config("$a; from 3 at 12: $a; from 4 at 30: $a"));
  std::map<std::int64_t, int> seen;  // document -> number of times
  const auto see_records = [&](std::int64_t first, std::int64_t count) {
    for (const std::int64_t record : stream.make_batch(first, count).pair_records) ++seen[record];
  };
  see_records(0, 24);
  see_records(24, 12);
  // Pairs without a target at length 12 come in the next epoch.
  std::size_t left = 0;
  for (const auto& [document, pair] : kept_pairs(pairs_, 12)) left += !seen.contains(document);
  see_records(36, static_cast<std::int64_t>(left));
  for (const auto& [document, count] : seen) ASSERT_EQ(count, 1) << document;

  seen.clear();
  const auto epoch = kept_pairs(pairs_, 30);
  see_records(36 + static_cast<std::int64_t>(left), std::ssize(epoch));
  ASSERT_EQ(seen.size(), epoch.size());
  for (const auto& [document, count] : seen) ASSERT_TRUE(epoch.contains(document));
}

TEST_F(PairSet, RecordsCountOnThroughTheSetsOfARun) {
  const PairShards other = random_pairs({10, 12}, 8);
  write_masked_set(at("b"), "dpo", other, kLongestSide);
  const data::SampleStream stream = data::SampleStream::open(config("$a + $b"));
  const auto size = static_cast<std::int64_t>(stream.epoch_size().value());
  std::map<std::int64_t, MaskedPair> expected = kept_pairs(pairs_, kLongestSide);
  for (const auto& [document, pair] : kept_pairs(other, kLongestSide))
    expected[82 + document] = pair;
  ASSERT_EQ(size, std::ssize(expected));
  for (std::int64_t i = 0; i < size; ++i) {
    const data::Batch batch = stream.make_batch(i, 1);
    const auto found = expected.find(batch.pair_records.front());
    ASSERT_NE(found, expected.end());
    expect_equal(batch, expected_batch({*found}, 4));
    expected.erase(found);
  }
}

TEST_F(PairSet, TrainsOnTheFirstPartOfASplitOnly) {
  data::StreamConfig asked = config("$a");
  asked.split = "80,20";
  const data::SampleStream stream = data::SampleStream::open(asked);
  const std::uint64_t train = data::Split::parse("80,20", "").part(data::SplitPart::train, 82).end;
  const auto size = static_cast<std::int64_t>(stream.epoch_size().value());
  EXPECT_EQ(size, static_cast<std::int64_t>(train));
  for (const std::int64_t record : stream.make_batch(0, size).pair_records)
    EXPECT_LT(record, static_cast<std::int64_t>(train));
  // Validation sees the rest like the stream would.
  const data::TokenSet& set = stream.first_set();
  data::SampleConfig view = stream.view(set, kLongestSide);
  view.documents = data::DocumentRange{train, 82};
  const data::SampleSet held_out(set, view);
  const data::Batch batch = held_out.make_batch(std::vector<std::int64_t>{0, 1, data::kNoSample},
                                                data::SampleOrder(held_out.size(), 0, false));
  EXPECT_EQ(batch.pair_records.front(), static_cast<std::int64_t>(train));
  EXPECT_EQ(batch.T % 4, 0);
}

TEST_F(PairSet, InvalidOptionsAreRefused) {
  const data::TokenSet set = data::TokenSet::open(at("a"));
  EXPECT_THROW(data::SampleSet(set, {.seq_len = 16, .packing = data::Packing::concat}), Error);
  EXPECT_THROW(data::SampleSet(set, 1), Error);
  MaskedPair late;  // its only targets are the last tokens of long answers
  late.chosen = {{2, 3, 4, 5}, {false, false, false, true}};
  late.rejected = {{6, 7, 8, 9}, {false, false, false, true}};
  write_masked_set(at("late"), "dpo", PairShards{{late}}, kLongestSide);
  const data::TokenSet none = data::TokenSet::open(at("late"));
  EXPECT_EQ(data::SampleSet(none, 4).size(), 1U);
  try {
    const data::SampleSet cut(none, 3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
    EXPECT_NE(std::string(error.what()).find("no pair keeps a target"), std::string::npos);
  }
}

}  // namespace
}  // namespace trireme::testing
