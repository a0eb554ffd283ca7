/// Trains in fp8 (train.fp8) on the CPU, which computes the values that a GPU computes: layouts
/// train like one process, a run resumes bit for bit, and losses stay near those of bf16.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "support/run_program.hpp"
#include "support/train_layout.hpp"

namespace trireme::testing {
namespace {

constexpr model::Fp8Mode kModes[] = {model::Fp8Mode::tensorwise, model::Fp8Mode::rowwise,
                                     model::Fp8Mode::delayed};

/// Two blocks in which every matrix is in fp8, also on two ranks of tp.
Shape fp8_shape() {
  Shape shape;
  shape.hidden_size = 128;
  shape.num_heads = 4;
  shape.num_kv_heads = 2;
  shape.head_dim = 32;
  shape.intermediate_size = 128;
  shape.length = 16;
  shape.dropout = 0;
  shape.tied = false;  // the two gradients of a tied table are added in another order on two stages
  return shape;
}

/// Trains three updates of 12 samples in fp32, with the audit of calls, bytes and memory.
Trace train_in(model::Fp8Mode mode, int ranks, const parallel::ParallelConfig& parallel,
               double lr = 1e-3) {
  const Shape shape = fp8_shape();
  Trace result;
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    at::set_num_threads(1);
    train::TrialPlan plan;
    plan.model = model_config(shape);
    plan.parallel = parallel;
    plan.dtypes = {at::kFloat, at::kFloat};
    plan.path = ops::Path::fast;
    plan.fp8 = mode;
    plan.steps = 3;
    plan.lr = lr;
    plan.audit = true;
    const int data_ranks = ranks / static_cast<int>(parallel.tp * parallel.pp);
    plan.batches = [&](int rank, std::int64_t step) {
      std::vector<data::Batch> batches;
      const std::int64_t mine = kSamples / data_ranks;
      const std::int64_t first = step * kSamples + rank * mine;
      for (std::int64_t at = 0; at < mine; at += 3)
        batches.push_back(
            train::make_rows({first + at, first + at + 1, first + at + 2}, 16, shape.vocab));
      return batches;
    };
    plan.targets = [&](std::int64_t step) { return targets_of_update(shape, step * kSamples); };
    Trace trace = train::run_trial(world, plan);
    if (world.rank() == 0) result = std::move(trace);
  });
  EXPECT_EQ(result.audit, "");
  return result;
}

double distance(const std::vector<double>& values, const std::vector<double>& expected) {
  double worst = 0;
  for (std::size_t i = 0; i < expected.size(); ++i)
    worst = std::max(worst, std::abs(values[i] / expected[i] - 1));
  return worst;
}

parallel::ParallelConfig tensor(bool sequence_parallel) {
  parallel::ParallelConfig config;
  config.tp = 2;
  config.sequence_parallel = sequence_parallel;
  return config;
}

TEST(Fp8Training, TwoTensorRanksTrainLikeOne) {
  for (const model::Fp8Mode mode : kModes) {
    const Trace one = train_in(mode, 1, {}, 0);  // at the same weights
    for (const bool sequence_parallel : {false, true}) {
      const Trace two = train_in(mode, 2, tensor(sequence_parallel), 0);
      // Sums in another order change fp32 activations by 1e-7, so that few codes differ. Scales of
      // parts instead of wholes would change most codes.
      EXPECT_LE(distance(two.losses, one.losses), 1e-6) << static_cast<int>(mode);
      EXPECT_LE(distance(two.norms, one.norms), 2e-4) << static_cast<int>(mode);
    }
  }
}

TEST(Fp8Training, CheckpointingZeroAndPipelineGiveTheSameTraining) {
  for (const model::Fp8Mode mode : kModes) {
    const Trace one = train_in(mode, 1, {});
    for (const char* recompute : {"selective", "full"}) {
      parallel::ParallelConfig config;
      config.recompute = recompute;
      const Trace again = train_in(mode, 1, config);
      EXPECT_EQ(again.losses, one.losses) << recompute;
      EXPECT_TRUE(again.weights.equal(one.weights)) << recompute;
    }
    parallel::ParallelConfig stages;
    stages.pp = 2;
    const Trace pipelined = train_in(mode, 2, stages);
    EXPECT_EQ(pipelined.losses, one.losses);
    EXPECT_TRUE(pipelined.weights.equal(one.weights));

    const Trace data = train_in(mode, 2, {});
    parallel::ParallelConfig zero;
    zero.zero = 3;
    const Trace sharded = train_in(mode, 2, zero);
    EXPECT_LE(distance(data.losses, one.losses), 2e-5);
    EXPECT_LE(distance(sharded.losses, data.losses), 2e-5);
  }
}

TEST(Fp8Training, LossesDifferFromThoseWithoutFp8ByItsRounding) {
  const Trace off = train_in(model::Fp8Mode::off, 1, {});
  for (const model::Fp8Mode mode : kModes) {
    const Trace trace = train_in(mode, 1, {});
    EXPECT_GT(distance(trace.losses, off.losses), 1e-6);
    EXPECT_LE(distance(trace.losses, off.losses), 1e-2);
  }
}

class Fp8Run : public RunProgram {
 protected:
  /// Trains a model with matrices of 128 rows and columns.
  static Exit train(const std::string& run, const Arguments& more, const Start& how = {}) {
    Arguments all{"--model.hidden_size",  "128", "--model.num_heads",         "4",
                  "--model.num_kv_heads", "2",   "--model.intermediate_size", "128",
                  "--train.precision",    "bf16"};
    all.insert(all.end(), more.begin(), more.end());
    return pretrain(run, all, how);
  }
};

TEST_F(Fp8Run, ResumesBitForBit) {
  for (const int ranks : {1, 2}) {
    const Start how{.ranks = ranks};
    const std::string tp = std::to_string(ranks);
    const auto run = [&](const std::string& name) {
      const Exit exit = train(name + tp,
                              {"--train.fp8", "delayed", "--parallel.tp", tp, "--train.steps", "6",
                               "--checkpoint.every", "3", "--checkpoint.keep_last", "0"},
                              how);
      EXPECT_EQ(exit.code, 0) << exit.err;
    };
    run("parts");
    const std::string whole = hash("parts" + tp);
    const std::vector<double> losses = metrics("parts" + tp).losses();
    std::filesystem::remove_all(path("parts" + tp) / "checkpoints" / "step-000000006");
    std::filesystem::remove(path("parts" + tp) / "status.json");
    run("parts");
    EXPECT_EQ(metrics("parts" + tp).resumed_from, std::vector<std::int64_t>{3});
    EXPECT_EQ(hash("parts" + tp), whole);
    EXPECT_EQ(metrics("parts" + tp).losses(), losses);
  }
  expect_refused(train("parts1", {"--train.steps", "7", "--train.fp8", "off"}), 2,
                 {"train.fp8 = off", "the checkpoint has delayed"});
}

TEST_F(Fp8Run, LearnsLikeBf16) {
  std::map<std::string, std::vector<double>> losses;
  for (const std::string mode : {"off", "tensorwise", "rowwise", "delayed"}) {
    const Exit exit = train(mode, {"--train.steps", "12", "--train.fp8", mode});
    ASSERT_EQ(exit.code, 0) << exit.err;
    losses[mode] = metrics(mode).losses();
    EXPECT_LT(losses[mode].back(), 0.95 * losses[mode].front()) << mode;
    // Codes of e4m3 and e5m2 have relative errors of 2^-4 and 2^-3 at most. Their mean over
    // hundreds of terms and thousands of targets stays below 1 % of the loss.
    EXPECT_LE(distance(losses[mode], losses["off"]), 1e-2) << mode;
  }
  EXPECT_NE(losses["tensorwise"], losses["off"]);
  EXPECT_NE(losses["tensorwise"], losses["rowwise"]);
  EXPECT_NE(losses["tensorwise"], losses["delayed"]);
}

TEST_F(Fp8Run, IsRefusedWhereItCannotBe) {
  expect_refused(train("b", {"--train.fp8", "rowwise", "--train.precision", "fp16"}), 2,
                 {"train.precision = fp16", "must be bf16 with train.fp8 = rowwise"});
  expect_refused(train("c", {"--train.fp8", "rowwise", "--model.hidden_size", "120"}), 2,
                 {"train.fp8 = rowwise", "at least 128 rows and columns"});
  expect_refused(train("d",
                       {"--train.fp8", "rowwise", "--parallel.tp", "2", "--parallel.tp_chunks", "2",
                        "--model.intermediate_size", "144"},
                       {.ranks = 2}),
                 2,
                 {"parallel.tp = 2", "divisible by 16", "rank 0 of tp gets 72",
                  "parallel.tp_chunks = 2, must be 1 with train.fp8"});
}

}  // namespace
}  // namespace trireme::testing
