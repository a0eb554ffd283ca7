#include "train/step/step_hash_log.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>

#include "comm/thread/thread_world.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "core/log.hpp"
#include "parallel/context/shard_sequence.hpp"
#include "train/health/spike.hpp"
#include "train/step/microbatches.hpp"
#include "train/step/update_targets.hpp"
#include "unit/core/scratch.hpp"
#include "unit/data/small_set.hpp"

namespace trireme::train {
namespace {

class StepChainTest : public Scratch {
 protected:
  std::string file() const { return read_file(at("chain.txt")); }
};

TEST_F(StepChainTest, ALineForEveryStepThatDependsOnAllBefore) {
  StepHashLog chain(at("chain.txt"), true);
  chain.start(0, "");
  chain.append(1, 7);
  const std::string first = chain.value();
  chain.append(2, 8);
  EXPECT_EQ(file(), "000000001 " + first + "\n000000002 " + chain.value() + "\n");

  StepHashLog other(at("other.txt"), true);
  other.start(0, "");
  other.append(1, 6);
  other.append(2, 8);
  EXPECT_NE(other.value(), chain.value()) << "step 1 differed";

  StepHashLog silent(at("silent.txt"), false);
  silent.start(0, "");
  silent.append(1, 7);
  EXPECT_EQ(silent.value(), first);
  EXPECT_FALSE(std::filesystem::exists(at("silent.txt")));
}

TEST_F(StepChainTest, AResumeCutsBackToItsCheckpointAndContinues) {
  std::string at_two;
  std::string whole;
  {
    StepHashLog chain(at("chain.txt"), true);
    chain.start(0, "");
    for (std::int64_t step = 1; step <= 4; ++step) {
      chain.append(step, static_cast<std::uint64_t>(step));
      if (step == 2) at_two = chain.value();
    }
    whole = file();
  }
  std::ofstream(at("chain.txt"), std::ios::app) << "000000005 ab";  // incomplete
  ::testing::internal::CaptureStderr();
  StepHashLog resumed(at("chain.txt"), true);
  resumed.start(2, at_two);
  EXPECT_EQ(file().size(), whole.size() / 2);
  resumed.append(3, 3);
  resumed.append(4, 4);
  log::flush();

  EXPECT_EQ(file(), whole);
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
}

TEST_F(StepChainTest, AStepTakenAgainThatDiffersIsSaidOnce) {
  {
    StepHashLog chain(at("chain.txt"), true);
    chain.start(0, "");
    for (std::int64_t step = 1; step <= 3; ++step) chain.append(step, 1);
  }
  ::testing::internal::CaptureStderr();
  StepHashLog again(at("chain.txt"), true);
  again.start(0, "");
  again.append(1, 1);
  again.append(2, 99);
  again.append(3, 1);
  log::flush();
  const std::string text = ::testing::internal::GetCapturedStderr();

  EXPECT_NE(text.find("step 2 is not bit for bit"), std::string::npos) << text;
  EXPECT_EQ(text.find("step 3"), std::string::npos) << text;
}

TEST_F(StepChainTest, LinesThatNeverCameToTheDiskAreBridgedByTheCheckpoint) {
  std::ofstream(at("chain.txt")) << "000000001 " << std::string(32, 'a') << "\n";
  StepHashLog chain(at("chain.txt"), true);
  chain.start(5, std::string(32, 'b'));
  EXPECT_EQ(file(),
            "000000001 " + std::string(32, 'a') + "\n000000005 " + std::string(32, 'b') + "\n");
}

TEST_F(StepChainTest, EveryFactOfAStepMatters) {
  data::Batch batch;
  batch.sample_indices = {4, 5};
  const auto trace = [&](int rank, double loss, double norm, double lr) {
    return step_trace(rank, std::span(&batch, 1), loss, norm, lr, 6);
  };
  const std::uint64_t base = trace(0, 1, 2, 3);
  EXPECT_EQ(trace(0, 1, 2, 3), base);
  EXPECT_NE(trace(1, 1, 2, 3), base);
  EXPECT_NE(trace(0, std::nextafter(1, 2), 2, 3), base);
  EXPECT_NE(trace(0, 1, std::nextafter(2, 3), 3), base);
  EXPECT_NE(trace(0, 1, 2, std::nextafter(3, 4)), base);
  EXPECT_NE(step_trace(0, std::span(&batch, 1), 1, 2, 3, 0), base);
  batch.sample_indices = {5, 4};
  EXPECT_NE(trace(0, 1, 2, 3), base);
}

/// Returns two pairs of 3 + 2 and 1 + 3 tokens, and padding up to 12.
data::Batch two_pairs() {
  data::Batch batch;
  batch.B = 1;
  batch.T = 12;
  batch.tokens = {1, 2, 3, 1, 4, 5, 5, 6, 7, 0, 0, 0};
  batch.targets = {2, 3, -100, 4, -100, -100, 6, 7, -100, -100, -100, -100};
  batch.positions = {0, 1, 2, 0, 1, 0, 0, 1, 2, 0, 1, 2};
  batch.segment_bounds = {0, 3, 5, 6, 9, 12};
  batch.sample_indices = {7, 8};
  batch.sequence_of = {0, 0, 0, 1, 1, 2, 3, 3, 3, -1, -1, -1};
  batch.target_weights = {1, 10, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  batch.num_pairs = 2;
  batch.pair_records = {30, 4};
  return batch;
}

TEST(MicrobatchesTest, PairsAreShardedWithTheirTokens) {
  const parallel::Microbatch whole = to_microbatch(two_pairs(), at::kCPU, 5, true);
  EXPECT_EQ(whole.num_pairs, 2);
  EXPECT_EQ(whole.pair_records, (std::vector<std::int64_t>{30, 4}));
  EXPECT_EQ(whole.bounds, (std::vector<std::vector<std::int64_t>>{{0, 3, 5, 6, 9, 12}}));
  EXPECT_EQ(whole.samples.sizes(), at::IntArrayRef{1});
  EXPECT_EQ(whole.sequence_of.scalar_type(), at::kLong);
  EXPECT_EQ(whole.target_weights.scalar_type(), at::kFloat);

  comm::run_ranks(2, [&](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {.cp = 2});
    const parallel::Microbatch own =
        parallel::shard_sequence(to_microbatch(two_pairs(), at::kCPU, 5, true), mesh);
    const ops::RowPositions& positions =
        own.positions_of_ranks[static_cast<std::size_t>(world.rank())];
    EXPECT_EQ(own.length(), 6);
    std::int64_t at = 0;
    for (const ops::TokenRange& range : positions[0]) {
      for (std::int64_t i = range.first; i < range.first + range.length; ++i, ++at) {
        for (const auto field :
             {&parallel::Microbatch::sequence_of, &parallel::Microbatch::target_weights,
              &parallel::Microbatch::targets, &parallel::Microbatch::dropout_positions})
          EXPECT_TRUE((own.*field)[0][at].equal((whole.*field)[0][i])) << i;
      }
    }
    EXPECT_EQ(own.num_pairs, 2);
  });
}

TEST(MicrobatchesTest, DropoutOfAPairDependsOnlyOnThePair) {
  const parallel::Microbatch both = to_microbatch(two_pairs(), at::kCPU, 5, true);
  data::Batch second = two_pairs();
  second.T = 4;
  for (auto* values : {&second.tokens, &second.targets, &second.positions})
    *values = {values->begin() + 5, values->begin() + 9};
  second.segment_bounds = {0, 1, 4};
  second.sample_indices = {8};
  second.sequence_of = {0, 1, 1, 1};
  second.target_weights = {};
  second.num_pairs = 1;
  second.pair_records = {4};

  const parallel::Microbatch alone = to_microbatch(second, at::kCPU, 5, true);

  EXPECT_TRUE(alone.dropout_positions.equal(both.dropout_positions.narrow(1, 5, 4)));
  EXPECT_TRUE(alone.samples.equal(both.samples));
  EXPECT_FALSE(alone.target_weights.defined());
  const at::Tensor all = std::get<0>(at::_unique(both.dropout_positions.narrow(1, 0, 9)));
  EXPECT_EQ(all.numel(), 9) << "tokens of one batch have masks of their own";
  EXPECT_GE(both.dropout_positions.min().item<std::int64_t>(), 0);
  EXPECT_LT(both.dropout_positions.max().item<std::int64_t>(), std::int64_t{1} << 32);
}

TEST(UpdateTargetsTest, AreThoseOfAllDataRanksOnEveryRank) {
  const testing::TestDirectory folder("update_targets");
  testing::write_numbered_set(folder.path(), 1, 3000, 50, 2, {16});
  const data::TokenSet set = data::TokenSet::open(folder.path());
  const data::SampleSet samples(set, 16);
  const data::SampleStream stream(samples, {.seed = 5});
  for (const parallel::ParallelConfig& layout :
       {parallel::ParallelConfig{}, parallel::ParallelConfig{.tp = 2},
        parallel::ParallelConfig{.cp = 2}, parallel::ParallelConfig{.tp = 4}}) {
    for (const bool ahead : {false, true}) {
      comm::run_ranks(4, [&](comm::Communicator& world) {
        const parallel::Mesh mesh(world, layout);
        data::DataLoader loader(stream, {.micro_batch = 2,
                                         .global_batch = 16,
                                         .rank = mesh.rank(parallel::Axis::dp),
                                         .size = mesh.size(parallel::Axis::dp),
                                         .next_sample = 32});
        UpdateTargets targets(loader, world, mesh);
        for (std::int64_t update = 0; update < 6; ++update) {
          std::vector<data::Batch> batches;
          for (std::int64_t i = 0; i < loader.micro_steps(); ++i) batches.push_back(loader.next());

          const std::int64_t total = targets.of(batches);

          EXPECT_EQ(total, stream.count_targets(32 + update * 16, 16));
          for (const data::Batch& batch : batches) EXPECT_EQ(batch.update_targets, total);
          if (ahead) targets.begin_next();
        }
      });
    }
  }
}

TEST(UpdateTargetsTest, RefuseBatchesThatHoldOthersThanWereCounted) {
  const testing::TestDirectory folder("update_targets");
  testing::write_numbered_set(folder.path(), 1, 3000, 50, 1, {16});
  const data::TokenSet set = data::TokenSet::open(folder.path());
  const data::SampleSet samples(set, 16);
  const data::SampleStream stream(samples, {.seed = 5});
  comm::run_ranks(1, [&](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {});
    data::DataLoader loader(stream, {.micro_batch = 2, .global_batch = 2});
    UpdateTargets targets(loader, world, mesh);
    std::vector<data::Batch> batches{loader.next()};
    batches.front().num_targets -= 1;
    try {
      targets.of(batches);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
    }
  });
}

TEST(SpikeDetector, ScoresAgainstWhatCameBefore) {
  SpikeDetector detector;
  for (std::size_t i = 0; i < SpikeDetector::kLeast; ++i)
    EXPECT_FALSE(detector.score(i % 2 == 0 ? 4.0 : 4.2));
  const auto calm = detector.score(4.1);
  ASSERT_TRUE(calm);
  EXPECT_LT(std::abs(*calm), 2);
  EXPECT_FALSE(detector.score(std::nan("")));
  const auto jump = detector.score(7.0);
  ASSERT_TRUE(jump);
  EXPECT_GT(*jump, SpikeDetector::kWarn);
  EXPECT_GT(*detector.score(7.0), SpikeDetector::kWarn) << "one spike does not hide the next";
  EXPECT_LT(*detector.score(1.0), -SpikeDetector::kWarn);
}

TEST(SpikeDetector, AFlatWindowMakesNoSpikesOfNoise) {
  SpikeDetector detector;
  for (int i = 0; i < 30; ++i) detector.score(2.0);
  EXPECT_LT(*detector.score(2.001), 2);
  EXPECT_GT(*detector.score(3.0), SpikeDetector::kWarn);
}

TEST(SpikeDetector, SurvivesACheckpointBitForBit) {
  SpikeDetector detector;
  for (int i = 1; i < 100; ++i) detector.score(1.0 / i);
  SpikeDetector restored;
  restored.restore(detector.text());
  EXPECT_EQ(restored.text(), detector.text());
  EXPECT_EQ(restored.score(0.3), detector.score(0.3));
  restored.restore("1 2 x");
  EXPECT_EQ(restored.text(), "");
}

}  // namespace
}  // namespace trireme::train
