/// Trains with captured passes on a CPU, where a launch calls the passes again. So these tests cover
/// everything around a CUDA graph: inputs, keys, counts of gradients, and the check of a graph.

#include "train/step/captured_passes.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <array>

#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/named_range.hpp"
#include "core/operation_record.hpp"
#include "unit/train/captured_trial.hpp"

namespace trireme::train {
namespace {

/// The micro-batches of an update. Their documents, targets and loss terms differ between updates.
struct Updates {
  int num = 4;
  int micro_batches = 4;
  bool weighted = false;
  bool packed = true;  // false: one document per row

  [[nodiscard]] data::Batch batch(int update, int i, const model::ModelConfig& model) const {
    const std::int64_t sample = 2 * (update * micro_batches + i);
    data::Batch batch =
        make_rows({sample, sample + 1}, packed ? model.max_seq_len : 4, model.vocab_size);
    if (!packed) {
      batch.segment_bounds = {0, 4, 8};
      batch.positions = {0, 1, 2, 3, 0, 1, 2, 3};
      for (std::size_t t = 0; t < 8; ++t)
        batch.targets[t] = (sample + static_cast<std::int64_t>(t)) % 11;
      batch.num_targets = 8;
    }
    if (weighted) {
      for (std::size_t t = 0; t < batch.tokens.size(); ++t)
        batch.target_weights.push_back(
            0.5F + static_cast<float>((static_cast<std::int64_t>(t) + sample) % 7));
    }
    return batch;
  }
};

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
      const Updates updates{.weighted = weighted};
      const Course expected = course_of(shape, updates);
      shape.graphs = kGraphs;

      const Course graphs = course_of(shape, updates);

      const std::string what = formatted("{}, weights {}", at::toString(dtype), weighted);
      expect_equal(graphs, expected, what);
      EXPECT_EQ(expected.num_launches, 0);
      EXPECT_GE(graphs.num_launches, 6) << what << ": two micro-batches of each key have no launch";
      EXPECT_LE(graphs.num_graphs, 4U) << what;
    }
  }
}

TEST(CapturedPasses, TakeModelsWithWindowsTiedEmbeddingsAndCheckpointing) {
  TrialShape shape = graph_trial_shape(at::kFloat);
  shape.model.tie_embeddings = true;
  shape.model.sliding_window = 3;
  shape.model.value_residual = true;
  shape.parallel.recompute = "full";
  const Updates updates;
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
  EXPECT_EQ(graphs.num_launches, updates.num * updates.micro_batches - 2);
}

TEST(CapturedPasses, DataRanksRunTheLastMicroBatchWithoutAGraph) {
  for (const int zero : {0, 1}) {
    TrialShape shape = graph_trial_shape(at::kDouble);
    shape.parallel.zero = zero;
    const Updates updates{.num = 4, .micro_batches = 8, .packed = false};
    const auto courses = [&] {
      std::array<Course, 2> results;
      comm::run_ranks(2, [&](comm::Communicator& world) {
        at::set_num_threads(1);
        results.at(static_cast<std::size_t>(world.rank())) = course_of(world, shape, updates);
      });
      return results;
    };
    const std::array<Course, 2> expected = courses();
    shape.graphs = kGraphs;

    const std::array<Course, 2> graphs = courses();

    for (std::size_t rank : {0, 1})
      expect_equal(graphs.at(rank), expected.at(rank), formatted("zero {}, rank {}", zero, rank));
    // The last of four micro-batches of a rank completes the gradients. With ZeRO-1, the first one
    // gathers the weights.
    const int per_update = zero == 0 ? 3 : 2;
    EXPECT_EQ(graphs[0].num_launches, updates.num * per_update - 2) << zero;
  }
}

/// Cross entropy that makes an error in captured passes only.
class FaultyObjective final : public objective::Objective {
 public:
  enum class Fault { none, first_targets, host_scale, throws, no_loss };

  FaultyObjective(objective::CrossEntropy& inner, Fault fault) : inner_(inner), fault_(fault) {}

  [[nodiscard]] bool keeps_values_on_device() const override { return true; }

  [[nodiscard]] bool has_fixed_shapes() const override { return true; }

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     objective::ObjectiveGrads& saved) override {
    parallel::Microbatch given = batch;
    if (!first_.defined()) first_ = batch.targets.clone();
    const bool is_captured = batch.grad_scale.defined();
    if (is_captured && fault_ == Fault::throws) throw std::runtime_error("cannot be captured");
    if (is_captured && fault_ == Fault::first_targets) given.targets = first_;
    if (is_captured && fault_ == Fault::host_scale) given.grad_scale = scale_;
    if (!is_captured) scale_ = at::scalar_tensor(grad_scale, at::kDouble);
    const at::Tensor loss = inner_.forward(given, hidden, grad_scale, saved);
    return is_captured && fault_ == Fault::no_loss ? loss * 1.01 : loss;
  }

  void backward(objective::ObjectiveGrads& saved) override { inner_.backward(saved); }

  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override {
    return inner_.evaluate(batch, hidden);
  }

 private:
  objective::CrossEntropy& inner_;
  Fault fault_;
  at::Tensor first_;
  at::Tensor scale_;
};

/// A step with a faulty objective.
struct FaultyTrial {
  FaultyTrial(FaultyObjective::Fault fault, const GraphUse& use)
      : trial(world, graph_trial_shape(at::kFloat)),
        loss(trial.objective, fault),
        step({trial.model, loss, *trial.optimizer, trial.scaler, trial.mesh, measures, nullptr, 0,
              false, use},
             1) {}

  double norm_of_update(int update) {
    std::vector<data::Batch> batches;
    std::int64_t terms = 0;
    for (int i = 0; i < 3; ++i) {
      batches.push_back(Updates{.packed = false}.batch(update, i, trial.model.config()));
      terms += batches.back().num_targets;
    }
    return step.run(batches, terms, update, update, 1e-2).grad_norm;
  }

  comm::SelfCommunicator world;
  TrialModel trial;
  Measures measures;
  FaultyObjective loss;
  Step step;
};

TEST(CapturedPasses, AGraphWithOldInputsIsFoundAndNotUsed) {
  using enum FaultyObjective::Fault;
  const std::vector<std::pair<FaultyObjective::Fault, std::string>> faults{
      {none, ""},
      {first_targets, "differ from the expected ones"},
      {host_scale, "differ from the expected ones"},
      {throws, "cannot be captured"},
      {no_loss, "the losses of a launched micro-batch"}};
  for (const auto& [fault, reason] : faults) {
    FaultyTrial expected(fault, {});
    FaultyTrial graphs(fault, kGraphs);
    for (int update = 1; update <= 3; ++update) {
      EXPECT_EQ(graphs.norm_of_update(update), expected.norm_of_update(update)) << reason;
    }
    const CapturedPasses& captured = *graphs.step.captured_passes();
    EXPECT_EQ(captured.num_launches(), fault == none ? 3 * 3 - 2 : 0) << reason;
    EXPECT_EQ(captured.failure().empty(), fault == none) << captured.failure();
    EXPECT_NE(captured.failure().find(reason), std::string::npos) << captured.failure();
  }
}

/// Runs single micro-batches and tells how many were launched.
struct SingleBatches {
  explicit SingleBatches(const TrialShape& shape) : trial(world, shape) {}

  /// Runs an update of one micro-batch [rows, 4]. Returns true if it was launched as a graph.
  bool launches(std::int64_t rows, bool weighted = false) {
    const std::int64_t before = trial.step.captured_passes()->num_launches();
    std::vector<std::int64_t> samples;
    for (std::int64_t row = 0; row < rows; ++row) samples.push_back(10 * ++number + 1);
    data::Batch batch = make_rows(samples, 4, trial.model.config().vocab_size);
    batch.segment_bounds.clear();
    for (std::int64_t row = 0; row <= rows; ++row)
      batch.segment_bounds.push_back(static_cast<std::int32_t>(4 * row));
    batch.targets.assign(batch.targets.size(), 1);
    batch.num_targets = std::ssize(batch.targets);
    if (weighted) batch.target_weights.assign(batch.tokens.size(), 2);
    const std::vector<data::Batch> batches{batch};
    trial.step.run(batches, batch.num_targets, number, number, 1e-2);
    EXPECT_EQ(trial.step.captured_passes()->failure(), "");
    return trial.step.captured_passes()->num_launches() > before;
  }

  comm::SelfCommunicator world;
  std::int64_t number = 0;
  TrialModel trial;
};

TrialShape shape_with_graphs() {
  TrialShape shape = graph_trial_shape(at::kFloat);
  shape.graphs = kGraphs;
  return shape;
}

TEST(CapturedPasses, TheLeastRecentlyUsedOfFourGraphsIsReplaced) {
  SingleBatches single(shape_with_graphs());
  for (const std::int64_t rows : {1, 2, 3, 4}) {
    EXPECT_FALSE(single.launches(rows));
    EXPECT_FALSE(single.launches(rows));
    EXPECT_TRUE(single.launches(rows));
  }
  EXPECT_TRUE(single.launches(1));
  EXPECT_FALSE(single.launches(5));  // replaces the graph of 2 rows
  EXPECT_EQ(single.trial.step.captured_passes()->num_graphs(), 4U);
  EXPECT_TRUE(single.launches(1));
  EXPECT_TRUE(single.launches(3));
  EXPECT_FALSE(single.launches(2));
}

TEST(CapturedPasses, WeightsAndTheTrainingWindowHaveTheirOwnGraphs) {
  SingleBatches single(shape_with_graphs());
  const auto expect_new_graph = [&](bool weighted) {
    EXPECT_FALSE(single.launches(2, weighted));
    EXPECT_FALSE(single.launches(2, weighted));
    EXPECT_TRUE(single.launches(2, weighted));
  };
  expect_new_graph(false);
  expect_new_graph(true);
  single.trial.model.limit_windows(3);
  expect_new_graph(false);
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
  for (int i = 0; i < 2; ++i) EXPECT_FALSE(single.launches(2));
  EXPECT_TRUE(single.launches(2));
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
  for (int i = 0; i < 3; ++i) (void)single.launches(2);
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
