#include "data/order/stream.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>

#include "core/error.hpp"
#include "core/timer.hpp"
#include "data/loader.hpp"
#include "data/sequences/pack_documents.hpp"
#include "unit/data/small_set.hpp"
#include "unit/data/stream_fixture.hpp"

namespace trireme::data {
namespace {

using testing::kBatch;
using testing::Stream;
using testing::TestDirectory;
using testing::write_numbered_set;

/// Returns how often each token of the samples [first, end) came, without padding; only tokens of
/// source `source`, if it is given.
std::map<std::int64_t, int> tokens_of(const SampleStream& stream, std::int64_t first,
                                      std::int64_t end, std::optional<std::size_t> source = {}) {
  std::map<std::int64_t, int> seen;
  for (std::int64_t i = first; i < end; ++i) {
    if (source && stream.locate(i).source != *source) continue;
    for (const std::int64_t token : stream.make_batch(i, 1).tokens) {
      if (token != 0) ++seen[token];
    }
  }
  return seen;
}

/// Expects that each token of [first, first + size) came `times` times, and no other token came.
void expect_each(const std::map<std::int64_t, int>& seen, std::int64_t first, int size, int times) {
  ASSERT_EQ(seen.size(), static_cast<std::size_t>(size));
  for (const auto& [token, count] : seen) {
    ASSERT_GE(token, first);
    ASSERT_EQ(count, times) << "token " << token;
  }
}

/// Returns the samples of update `update` on all ranks, in order of rank and gradient-accumulation
/// step; -1 for padding.
std::vector<std::int64_t> samples_of_update(const SampleStream& stream, LoaderConfig config,
                                            int ranks, int update) {
  std::vector<std::int64_t> samples;
  for (config.rank = 0, config.size = ranks; config.rank < ranks; ++config.rank) {
    DataLoader loader(stream, config);
    for (int u = 0; u <= update; ++u) {
      std::int64_t held = 0;
      for (std::int64_t i = 0; i < loader.micro_steps(); ++i) {
        const Batch batch = loader.next();
        held += batch.num_targets;
        if (u != update) continue;
        samples.insert(samples.end(), batch.sample_indices.begin(), batch.sample_indices.end());
        EXPECT_EQ(batch.update_samples, config.end_sample - config.next_sample - u * kBatch);
        EXPECT_EQ(batch.update_batches, (batch.update_samples - 1) / config.micro_batch + 1);
      }
      EXPECT_EQ(loader.next_num_targets(), held);
    }
    EXPECT_EQ(loader.next_sample(), config.end_sample);
  }
  return samples;
}

TEST_F(Stream, TheLastUpdateOfARunEndsAtItsLastSampleOnAnyNumberOfRanks) {
  const SampleStream stream = open("$a");
  for (const std::int64_t begin : {0, 7}) {
    for (const int ranks : {1, 2, 4}) {
      const LoaderConfig config{.micro_batch = 3,
                                .global_batch = kBatch,
                                .next_sample = begin,
                                .end_sample = begin + 2 * kBatch + 4};
      std::vector<std::int64_t> samples = samples_of_update(stream, config, ranks, 2);

      ASSERT_EQ(std::ssize(samples), kBatch) << "every rank has all its rows";
      std::sort(samples.begin(), samples.end());
      EXPECT_EQ(std::count(samples.begin(), samples.end(), kNoSample), kBatch - 4);
      for (std::int64_t i = 0; i < 4; ++i)
        EXPECT_EQ(samples[static_cast<std::size_t>(kBatch - 4 + i)], begin + 2 * kBatch + i);
    }
  }
}

TEST_F(Stream, TellsThatAChangeOfLengthCutsAnUpdate) {
  const SampleStream stream = open("1 $a; from 3: 1 $b; from 5 at 32: 1 $a");

  EXPECT_FALSE(stream.cut_update(0, kBatch));
  EXPECT_FALSE(stream.cut_update(2 * kBatch, kBatch));
  EXPECT_EQ(stream.cut_update(kBatch + 5, kBatch), 5) << "another set alone cuts nothing";
  EXPECT_FALSE(stream.cut_update(5 * kBatch + 5, kBatch)) << "it lies behind";
}

TEST_F(Stream, OverOneSetIsTheOrderOfThatSet) {
  const TokenSet set = TokenSet::open(at("a"));
  const SampleSet samples(set, 16);
  const SampleOrder order(samples.size(), 5);
  const SampleStream stream = open("$a");

  EXPECT_EQ(stream.epoch_size(), samples.size());
  EXPECT_EQ(stream.content_hash(), set.content_hash());
  for (const std::int64_t first : {0, 17, 400, 100'000}) {
    std::vector<std::int64_t> indices(40);
    std::iota(indices.begin(), indices.end(), first);
    const Batch expected = samples.make_batch(indices, order);

    const Batch batch = stream.make_batch(first, 40);

    EXPECT_EQ(batch.tokens, expected.tokens);
    EXPECT_EQ(batch.targets, expected.targets);
    EXPECT_EQ(batch.segment_bounds, expected.segment_bounds);
    EXPECT_EQ(batch.sample_indices, expected.sample_indices);
    EXPECT_EQ(stream.count_targets(first, 40), expected.num_targets);
  }
}

TEST_F(Stream, OverAUnionHasEverySetOncePerEpoch) {
  const SampleStream stream = open("$a + $b");
  const auto epoch = static_cast<std::int64_t>(stream.epoch_size().value());
  auto seen = tokens_of(stream, epoch, 2 * epoch);

  expect_each({seen.begin(), seen.lower_bound(10000)}, 1, 6000, 1);
  expect_each({seen.lower_bound(10000), seen.end()}, 10001, 2500, 1);
  EXPECT_FALSE(open("1 $a + 1 $b").epoch_size().has_value());
}

TEST_F(Stream, DrawsFromSourcesByWeightEachInItsOwnOrder) {
  const SampleStream stream = open("3 $a + 1 $b");
  const SampleStream alone = open("$a");
  const auto size = static_cast<std::int64_t>(alone.epoch_size().value());
  std::vector<std::int64_t> of_a;  // its positions, in the order in which they came
  for (std::int64_t i = 0; std::ssize(of_a) < size + 50; ++i) {
    const StreamLocation place = stream.locate(i);
    if (place.source == 0) {
      ASSERT_EQ(place.position, alone.locate(std::ssize(of_a)).position);
      of_a.push_back(static_cast<std::int64_t>(place.position));
    }
  }
  const auto consumed = stream.consumed(4 * 700);
  EXPECT_EQ(consumed[0], 2100U);
  EXPECT_EQ(consumed[1], 700U);
}

TEST_F(Stream, PhasesContinueWhereEachSourceStopped) {
  const SampleStream stream = open(
      "3 $a + 1 $b; from 8: 1 $b + 1 $c; from 11: $a; from 15: 1 $c + 2 $a + 2 $b; from 300: 1 $a");
  std::vector<std::uint64_t> next(3, 0);
  std::map<std::size_t, std::map<std::uint64_t, std::vector<std::uint64_t>>> drawn;
  for (std::int64_t i = 0; i < 310 * kBatch; ++i) {
    if (i % 100 == 0) {
      ASSERT_EQ(stream.consumed(i), next) << i;
    }
    const StreamLocation place = stream.locate(i);
    const std::uint64_t size = place.samples->size();
    ASSERT_EQ(place.epoch, next[place.source] / size) << "no sample is left out or repeated";
    drawn[place.source][place.epoch].push_back(place.position);
    ++next[place.source];
  }
  for (auto& [source, epochs] : drawn) {
    ASSERT_GT(epochs.size(), 2U);
    for (auto& [epoch, positions] : epochs) {
      std::sort(positions.begin(), positions.end());
      ASSERT_EQ(std::unique(positions.begin(), positions.end()), positions.end());
      if (epoch + 1 < epochs.size()) {
        ASSERT_EQ(positions.back(), positions.size() - 1) << "source " << source;
      }
    }
  }
}

TEST_F(Stream, AnotherLengthContinuesWithTheRestOfTheEpoch) {
  // 16 tokens, then 40, then 24, then 16 again, all within the first epoch of a and of b.
  const SampleStream stream = open(
      "3 $a + 1 $b; from 6 at 40: 1 $a + 1 $b; from 8 at 24: $b; from 9 at 16: 1 $a; from 40: 1 $b "
      "+ 1 $a");
  EXPECT_EQ(stream.max_seq_len(), 40);
  for (const std::size_t source : {0, 1}) {
    std::map<std::int64_t, int> seen;
    std::int64_t last = 0;
    std::int64_t i = 0;
    const std::int64_t size = source == 0 ? 6000 : 2500;
    for (; std::ssize(seen) < size && i < 200 * kBatch; ++i) {
      const StreamLocation place = stream.locate(i);
      ASSERT_EQ(place.samples->seq_len(), stream.seq_len(i));
      if (place.source != source) continue;
      const Batch batch = stream.make_batch(i, 1);
      ASSERT_EQ(batch.T, stream.seq_len(i));
      for (const std::int64_t token : batch.tokens) {
        if (token != 0) ++seen[token];
      }
      last = i;
    }
    expect_each(seen, source == 0 ? 1 : 10001, static_cast<int>(size), 1);
    ASSERT_GT(last, 8 * kBatch) << "the epoch ends after the changes of length";
    // Then whole epochs follow: the next one has each token once more.
    std::map<std::int64_t, int> second;
    for (; std::ssize(second) < size && i < 400 * kBatch; ++i) {
      if (stream.locate(i).source != source) continue;
      for (const std::int64_t token : stream.make_batch(i, 1).tokens) {
        if (token != 0) ++second[token];
      }
    }
    expect_each(second, source == 0 ? 1 : 10001, static_cast<int>(size), 1);
  }
}

TEST_F(Stream, TrainsOnTheFirstPartOfASplitOnly) {
  StreamConfig asked = config("$a + $b");
  asked.split = "80,15,5";
  for (const Packing packing : {Packing::best_fit, Packing::concat}) {
    asked.packing = packing;
    const SampleStream stream = SampleStream::open(asked);
    const auto seen = tokens_of(stream, 0, static_cast<std::int64_t>(*stream.epoch_size()));
    std::size_t expected = 0;
    for (const TokenSet* set : stream.sets()) {
      const DocumentRange train =
          Split::parse("80,15,5", "").part(SplitPart::train, set->num_documents());
      const SampleSet samples(*set, {.seq_len = 16, .documents = train});
      std::vector<std::int64_t> all(samples.size());
      std::iota(all.begin(), all.end(), 0);
      const Batch batch = samples.make_batch(all, SampleOrder(samples.size(), 0));
      std::set<std::int64_t> tokens(batch.tokens.begin(), batch.tokens.end());
      tokens.erase(0);
      for (const std::int64_t token : tokens) ASSERT_TRUE(seen.contains(token));
      expected += tokens.size();
    }
    EXPECT_EQ(seen.size(), expected);
  }
}

TEST_F(Stream, ResumesAtRandomPointsWithOtherRanksAndYieldsExactlyTheRest) {
  const std::string plan =
      "0.7 $a + 0.3 $b; from 30: 1 $a + 1 $b + 1 $c; from 60 at 24: 2 $a + 1 $c";
  const SampleStream whole = open(plan);
  constexpr std::int64_t kSteps = 80;
  std::map<std::int64_t, std::vector<std::int64_t>> expected;  // sample -> its tokens
  std::vector<std::int64_t> targets;                           // number of targets of each step
  {
    DataLoader loader(whole, {.micro_batch = kBatch, .global_batch = kBatch});
    for (std::int64_t step = 0; step < kSteps; ++step) {
      const Batch batch = loader.next();
      targets.push_back(batch.num_targets);
      ASSERT_EQ(batch.num_targets, loader.next_num_targets());
      for (std::int64_t row = 0; row < batch.B; ++row) {
        const auto begin = batch.tokens.begin() + row * batch.T;
        expected[batch.sample_indices[std::size_t(row)]] = {begin, begin + batch.T};
      }
    }
  }
  std::mt19937 random(8);
  for (int trial = 0; trial < 20; ++trial) {
    const std::int64_t stop = static_cast<std::int64_t>(random() % kSteps);
    const int size = std::vector<int>{1, 2, 3, 4, 6, 12}[random() % 6];
    const std::int64_t micro_batch = random() % 2 == 0 || size == 12 ? 1 : kBatch / size;
    // The second part gets only the state that a checkpoint of the first part keeps.
    const auto values = whole.state(stop * kBatch);
    const SampleStream resumed = open(plan);
    resumed.check_state(values, stop * kBatch, "checkpoint");
    std::map<std::int64_t, std::vector<std::int64_t>> rest;
    std::vector<std::int64_t> shares(targets.size(), 0);
    for (int rank = 0; rank < size; ++rank) {
      DataLoader loader(resumed, {.micro_batch = micro_batch,
                                  .global_batch = kBatch,
                                  .rank = rank,
                                  .size = size,
                                  .next_sample = stop * kBatch});
      for (std::int64_t i = stop * loader.micro_steps(); i < kSteps * loader.micro_steps(); ++i) {
        const Batch batch = loader.next();
        if (i % loader.micro_steps() == 0)
          shares[std::size_t(i / loader.micro_steps())] += loader.next_num_targets();
        for (std::int64_t row = 0; row < batch.B; ++row) {
          const auto begin = batch.tokens.begin() + row * batch.T;
          ASSERT_TRUE(rest.emplace(batch.sample_indices[std::size_t(row)],
                                   std::vector<std::int64_t>(begin, begin + batch.T))
                          .second)
              << "one sample on two ranks";
        }
      }
    }
    for (std::size_t step = std::size_t(stop); step < targets.size(); ++step)
      ASSERT_EQ(shares[step], targets[step]);
    const decltype(expected) left(expected.lower_bound(stop * kBatch), expected.end());
    ASSERT_EQ(rest, left) << "stopped at step " << stop << ", " << size << " ranks";
  }
}

TEST_F(Stream, BatchPhasesKeepTheOrderOfSamplesForAnyRanksAndResumes) {
  const SampleStream stream = open("$a");
  const BatchPhases phases("0:12,2:24,4:12");
  constexpr std::int64_t kUpdates = 6;
  for (std::int64_t done = 0; done < kUpdates; ++done) {
    for (const int size : {1, 2, 3}) {
      std::map<std::int64_t, int> uses;
      const std::int64_t begin = phases.samples(0, done);
      const std::int64_t end = phases.samples(0, kUpdates) - 5;  // the last update is incomplete
      for (int rank = 0; rank < size; ++rank) {
        DataLoader loader(stream, {.micro_batch = 2,
                                   .global_batch = 1,
                                   .rank = rank,
                                   .size = size,
                                   .next_sample = begin,
                                   .end_sample = end,
                                   .phases = phases.after(done)});
        for (std::int64_t step = done + 1; step <= kUpdates; ++step) {
          const std::int64_t micro_steps = loader.micro_steps();
          ASSERT_EQ(micro_steps, phases.global_batch(step) / (2 * size));
          std::int64_t targets = 0;
          for (std::int64_t i = 0; i < micro_steps; ++i) {
            const Batch batch = loader.next();
            EXPECT_EQ(batch.update_samples,
                      std::min(phases.samples(0, step), end) - phases.samples(0, step - 1));
            targets += batch.num_targets;
            for (const std::int64_t sample : batch.sample_indices)
              if (sample != kNoSample) ++uses[sample];
          }
          EXPECT_EQ(loader.next_num_targets(), targets);
          EXPECT_EQ(loader.next_sample(), std::min(phases.samples(0, step), end));
        }
      }
      EXPECT_EQ(static_cast<std::int64_t>(uses.size()), end - begin) << done << " " << size;
      for (const auto& [sample, count] : uses) EXPECT_EQ(count, 1) << sample;
    }
  }
  EXPECT_THROW(DataLoader(stream, {.micro_batch = 2, .size = 2, .phases = BatchPhases("0:12,1:6")}),
               Error);
}

TEST_F(Stream, GivesTheFirstBatchAtABillionSamplesWithinASecond) {
  const std::string plan =
      "0.2 $a + 0.5 $b + 0.3 $c; from 40000000: 0.6 $a + 0.2 $b + 0.2 $c; from 80000000: 1 $a + 2 "
      "$b";
  constexpr std::int64_t kFar = 1'000'000'008;
  const Timer timer;

  const SampleStream stream = open(plan);
  DataLoader loader(stream, {.micro_batch = kBatch, .global_batch = kBatch, .next_sample = kFar});
  const Batch batch = loader.next();

  const double seconds = timer.seconds();
  const SampleStream::State state = stream.state(kFar);
  const std::size_t bytes = state.content_hash->size() + state.plan->size();
  std::printf("first batch at sample %ld: %.3f s, state %zu bytes\n", long(kFar), seconds, bytes);
  EXPECT_LT(seconds, 1);
  EXPECT_LT(bytes, 10'000U);
  EXPECT_EQ(batch.sample_indices.front(), kFar);
  const auto consumed = stream.consumed(kFar);
  EXPECT_EQ(std::accumulate(consumed.begin(), consumed.end(), std::uint64_t{0}),
            static_cast<std::uint64_t>(kFar));
}

TEST_F(Stream, RefusesSetsThatDoNotBelongTogetherAndConcatAtAnotherLength) {
  TestDirectory other("other_vocabulary");
  write_numbered_set(other.path(), 1, 100, 5, 1, {16});
  std::string text = read_file(other.path() / schema::kManifest);
  Manifest manifest = Manifest::from_text(text, "m");
  manifest.tokenizer_hash = "another";
  std::filesystem::remove(other.path() / schema::kManifest);
  write_file_atomic(other.path() / schema::kManifest, manifest.to_text());

  EXPECT_THROW(open("1 $a + 1 " + other.path().string()), Error);
  StreamConfig concat = config("$a; from 5 at 24: $a");
  concat.packing = Packing::concat;
  EXPECT_THROW(SampleStream::open(concat), Error);
  EXPECT_THROW(open("$a; from 9000000000000000000: $b"), Error);
}

}  // namespace
}  // namespace trireme::data
