/// Trains with captured passes on a CPU, where a launch calls the passes again. So these tests cover
/// everything around a CUDA graph: inputs, keys, counts of gradients, and the check of a graph.

#include "train/step/captured_passes.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>
#include <optional>

#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/named_range.hpp"
#include "core/operation_record.hpp"
#include "ops/attention/memo.hpp"
#include "unit/train/captured_trial.hpp"

namespace trireme::train {
namespace {

/// The results of some updates on one rank.
struct Course {
  std::vector<double> losses;
  std::vector<double> norms;
  at::Tensor weights;
  std::int64_t num_launches = 0;
  std::size_t num_graphs = 0;
  std::string failure;
};

Course course_of(comm::Communicator& world, const TrialShape& shape, const Updates& updates) {
  TrialModel trial(world, shape);
  const int ranks = trial.mesh.size(parallel::Axis::data);
  const int rank = trial.mesh.rank(parallel::Axis::data);
  Course course;
  for (int update = 1; update <= updates.num; ++update) {
    std::vector<data::Batch> batches;
    std::int64_t terms = 0;
    for (int i = 0; i < updates.micro_batches; ++i) {
      data::Batch batch = updates.batch(update, i, trial.model.config());
      terms += batch.num_targets;
      if (i % ranks == rank) batches.push_back(std::move(batch));
    }
    const UpdateResult result = trial.step.run(batches, terms, update, update, 1e-2);
    EXPECT_FALSE(result.skipped);
    course.losses.push_back(result.loss_sum);
    course.norms.push_back(result.grad_norm);
  }
  trial.registry.weights().settle();
  course.weights = trial.registry.master_part(0).clone();
  if (const CapturedPasses* const captured = trial.step.captured_passes()) {
    course.num_launches = captured->num_launches();
    course.num_graphs = captured->num_graphs();
    course.failure = captured->failure();
  }
  return course;
}

Course course_of(const TrialShape& shape, const Updates& updates) {
  comm::SelfCommunicator world;
  return course_of(world, shape, updates);
}

void expect_equal(const Course& graphs, const Course& expected, const std::string& what) {
  EXPECT_EQ(graphs.failure, "") << what;
  EXPECT_EQ(graphs.losses, expected.losses) << what;
  EXPECT_EQ(graphs.norms, expected.norms) << what;
  EXPECT_TRUE(graphs.weights.equal(expected.weights)) << what;
}

TEST(CapturedPasses, TrainExactlyLikePassesWithoutAGraph) {
  for (const at::ScalarType dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    for (const bool weighted : {false, true}) {
      TrialShape shape = graph_trial_shape(dtype);
      const Updates updates{.num = 8, .weighted = weighted};
      const Course expected = course_of(shape, updates);
      shape.graphs = kGraphs;

      const Course graphs = course_of(shape, updates);

      const std::string what = formatted("{}, weights {}", at::toString(dtype), weighted);
      expect_equal(graphs, expected, what);
      EXPECT_EQ(expected.num_launches, 0);
      EXPECT_GE(graphs.num_launches, 16) << what;
      EXPECT_LE(graphs.num_graphs, 2U) << what;
    }
  }
}

TEST(CapturedPasses, TakeModelsWithWindowsTiedEmbeddingsAndCheckpointing) {
  TrialShape shape = graph_trial_shape(at::kFloat);
  shape.model.tie_embeddings = true;
  shape.model.sliding_window = 3;
  shape.model.value_residual = true;
  shape.parallel.recompute = "full";
  const Updates updates{.num = 8};
  const Course expected = course_of(shape, updates);
  shape.graphs = kGraphs;

  const Course graphs = course_of(shape, updates);

  expect_equal(graphs, expected, "");
  EXPECT_GT(graphs.num_launches, 0);
}

TEST(CapturedPasses, RowsOfOneDocumentHaveOneGraph) {
  TrialShape shape = graph_trial_shape(at::kFloat);
  const Updates updates{.packed = false};
  const Course expected = course_of(shape, updates);
  shape.graphs = kGraphs;

  const Course graphs = course_of(shape, updates);

  expect_equal(graphs, expected, "");
  EXPECT_EQ(graphs.num_graphs, 1U);
  // The first micro-batch of the second update is checked.
  EXPECT_EQ(graphs.num_launches, updates.num * updates.micro_batches - 5);
}

std::array<Course, 2> courses_of(const TrialShape& shape, const Updates& updates) {
  return on_two_ranks<Course>(
      [&](comm::Communicator& world) { return course_of(world, shape, updates); });
}

TEST(CapturedPasses, DataRanksRunTheLastMicroBatchWithoutAGraph) {
  for (const int zero : {0, 1}) {
    TrialShape shape = graph_trial_shape(at::kDouble);
    shape.parallel.zero = zero;
    const Updates updates{.num = 4, .micro_batches = 8, .packed = false};
    const std::array<Course, 2> expected = courses_of(shape, updates);
    shape.graphs = kGraphs;

    const std::array<Course, 2> graphs = courses_of(shape, updates);

    for (std::size_t rank : {0, 1})
      expect_equal(graphs.at(rank), expected.at(rank), formatted("zero {}, rank {}", zero, rank));
    // The last of four micro-batches of a rank completes the gradients. With ZeRO-1, the first one
    // gathers the weights.
    const int per_update = zero == 0 ? 3 : 2;
    EXPECT_EQ(graphs[0].num_launches, updates.num * per_update - 4) << zero;
  }
}

TEST(CapturedPasses, UpdatesWithoutALaunchAreNotPadded) {
  for (const int zero : {0, 1}) {
    TrialShape shape = graph_trial_shape(at::kFloat);
    shape.parallel.zero = zero;
    const std::int64_t without_graph = zero == 0 ? 1 : 2;
    comm::run_ranks(2, [&](comm::Communicator& world) {
      at::set_num_threads(1);
      TrialModel trial(world, shape);
      CapturedPasses captured(trial.model, trial.objective, trial.mesh, kGraphs);
      const auto num_sequences = [&](std::int64_t num_micro_batches) {
        parallel::Microbatch batch;
        batch.tokens = batch.targets = at::zeros({1, 8}, at::kLong);
        batch.target_tokens = std::make_shared<const parallel::TargetTokens>();
        batch.training = true;
        batch.bounds = {{0, 2, 5, 8}};
        captured.begin_update(num_micro_batches);
        captured.pad(batch);
        const ops::AttentionSetup setup{.bounds = batch.bounds, .memo = batch.attention};
        return ops::placed_calls(setup, 1, 8, 8, at::kCPU)->front().query_starts.numel() - 1;
      };
      EXPECT_EQ(num_sequences(without_graph), 3) << zero;
      EXPECT_EQ(num_sequences(without_graph + 1), 4) << zero;
    });
    shape.graphs = kGraphs;
    const Updates updates{.num = 6, .micro_batches = 2 * static_cast<int>(without_graph)};
    EXPECT_EQ(courses_of(shape, updates)[0].num_graphs, 0U) << zero;
  }
}

/// Runs single micro-batches and tells how many were launched.
struct SingleBatches {
  explicit SingleBatches(const TrialShape& shape) : trial(world, shape) {}

  /// Runs an update of one micro-batch [rows, 4]. Returns true if it was launched as a graph.
  bool launches(std::int64_t rows, std::optional<float> weight = {}) {
    const std::int64_t before = trial.step.captured_passes()->num_launches();
    std::vector<std::int64_t> samples;
    for (std::int64_t row = 0; row < rows; ++row) samples.push_back(10 * ++number + 1);
    data::Batch batch = make_rows(samples, 4, trial.model.config().vocab_size);
    batch.segment_bounds.clear();
    for (std::int64_t row = 0; row <= rows; ++row)
      batch.segment_bounds.push_back(static_cast<std::int32_t>(4 * row));
    batch.targets.assign(batch.targets.size(), 1);
    batch.num_targets = std::ssize(batch.targets);
    if (weight) batch.target_weights.assign(batch.tokens.size(), *weight);
    const std::vector<data::Batch> batches{batch};
    trial.step.run(batches, batch.num_targets, number, number, 1e-2);
    EXPECT_EQ(trial.step.captured_passes()->failure(), "");
    return trial.step.captured_passes()->num_launches() > before;
  }

  /// Expects that a key gets a graph after the uses that it needs.
  void expect_new_graph(std::int64_t rows, std::optional<float> weight = {}) {
    for (int use = 0; use <= CapturedPasses::kUsesBeforeGraph; ++use)
      EXPECT_FALSE(launches(rows, weight)) << rows << ", " << use;
    EXPECT_TRUE(launches(rows, weight)) << rows;
  }

  [[nodiscard]] const CapturedPasses& graphs() const { return *trial.step.captured_passes(); }

  comm::SelfCommunicator world;
  std::int64_t number = 0;
  TrialModel trial;
};

TrialShape shape_with_graphs() {
  TrialShape shape = graph_trial_shape(at::kFloat);
  shape.graphs = kGraphs;
  return shape;
}

TEST(CapturedPasses, TheLeastRecentlyUsedGraphIsReplacedByAKeyWithSeveralUses) {
  SingleBatches single(shape_with_graphs());
  constexpr auto kMost = static_cast<std::int64_t>(CapturedPasses::kMostGraphs);
  for (std::int64_t rows = 1; rows <= kMost; ++rows) single.expect_new_graph(rows);
  for (int use = 1; use < CapturedPasses::kUsesBeforeGraph; ++use)
    EXPECT_FALSE(single.launches(kMost + 1));
  EXPECT_TRUE(single.launches(1));           // a key with few uses replaces no graph
  EXPECT_FALSE(single.launches(kMost + 1));  // replaces the graph of 2 rows
  EXPECT_EQ(single.graphs().num_graphs(), CapturedPasses::kMostGraphs);
  EXPECT_TRUE(single.launches(1));
  EXPECT_TRUE(single.launches(3));
  EXPECT_FALSE(single.launches(kMost + 1));
  EXPECT_TRUE(single.launches(kMost + 1));
  single.expect_new_graph(2);
}

TEST(CapturedPasses, ARunHasALimitedNumberOfCaptures) {
  SingleBatches single(shape_with_graphs());
  for (std::int64_t rows = 1; rows <= CapturedPasses::kMostCaptures; ++rows)
    single.expect_new_graph(rows);
  for (int use = 0; use < 6; ++use)
    EXPECT_FALSE(single.launches(CapturedPasses::kMostCaptures + 1)) << use;
  EXPECT_TRUE(single.launches(CapturedPasses::kMostCaptures));
  EXPECT_EQ(single.graphs().num_graphs(), CapturedPasses::kMostGraphs);
}

TEST(CapturedPasses, AGraphThatCannotBeCheckedIsGivenUp) {
  SingleBatches single(shape_with_graphs());
  const int uses = CapturedPasses::kUsesBeforeGraph + CapturedPasses::kMostInconclusive;
  for (int use = 1; use < uses; ++use) EXPECT_FALSE(single.launches(2, 0)) << use;
  EXPECT_EQ(single.graphs().num_graphs(), 1U);
  EXPECT_FALSE(single.launches(2, 0));
  EXPECT_EQ(single.graphs().num_graphs(), 0U);
  for (int use = 0; use < 6; ++use) EXPECT_FALSE(single.launches(2, 1)) << use;
  EXPECT_EQ(single.graphs().num_graphs(), 0U);
  single.expect_new_graph(3, 1);
}

TEST(CapturedPasses, WeightsAndTheTrainingWindowHaveTheirOwnGraphs) {
  SingleBatches single(shape_with_graphs());
  single.expect_new_graph(2);
  single.expect_new_graph(2, 2);
  single.trial.model.limit_windows(3);
  single.expect_new_graph(2);
  single.trial.model.limit_windows(0);
  EXPECT_TRUE(single.launches(2));
}

TEST(CapturedPasses, ProfilesRecordsAndActivationCountsSeePassesWithoutAGraph) {
  struct Observer : RangeObserver {
    void begin(Phase phase, const std::string&) override {
      forwards += phase == Phase::forward ? 1 : 0;
    }

    void end() override {}

    int forwards = 0;
  };

  SingleBatches single(shape_with_graphs());
  single.expect_new_graph(2);
  {
    Observer observer;
    range_observer = &observer;
    EXPECT_FALSE(single.launches(2));
    range_observer = nullptr;
    EXPECT_EQ(observer.forwards, 1);
  }
  {
    OperationRecord record;
    record.start();
    EXPECT_FALSE(single.launches(2));
    record.stop();
  }
  single.trial.step.count_activations(true);
  EXPECT_FALSE(single.launches(2));
  single.trial.step.count_activations(false);
  EXPECT_TRUE(single.launches(2));
}

TEST(CapturedPasses, ATargetOutsideTheVocabularyIsAnErrorOfData) {
  SingleBatches single(shape_with_graphs());
  single.expect_new_graph(2);
  data::Batch batch = make_rows({1, 2}, 4, 8);
  batch.segment_bounds = {0, 4, 8};
  batch.targets.assign(8, single.trial.model.config().vocab_size);
  const std::vector<data::Batch> batches{batch};
  try {
    single.trial.step.run(batches, 8, 4, 4, 1e-2);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data);
  }
}

}  // namespace
}  // namespace trireme::train
