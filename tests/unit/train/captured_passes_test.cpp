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
#include "device/memory_count.hpp"
#include "ops/attention/memo.hpp"
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

/// Returns the results of `call` on two ranks.
template <class Result>
std::array<Result, 2> on_two_ranks(const std::function<Result(comm::Communicator&)>& call) {
  std::array<Result, 2> results;
  comm::run_ranks(2, [&](comm::Communicator& world) {
    at::set_num_threads(1);
    results.at(static_cast<std::size_t>(world.rank())) = call(world);
  });
  return results;
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

TEST(PassesKey, RoundsDocumentsToAPowerOfFourAndTheLongestOneToAPowerOfTwo) {
  parallel::Microbatch batch;
  batch.tokens = at::zeros({2, 1000}, at::kLong);
  const auto key = [&](std::vector<std::vector<std::int64_t>> bounds) {
    batch.bounds = std::move(bounds);
    return passes_key(batch, 7);
  };
  const PassesKey whole{.rows = 2, .length = 1000, .documents = 0, .longest = 1000, .window = 7};
  EXPECT_EQ(key({}), whole);
  EXPECT_EQ(key({{0, 1000}, {0, 1000}}), whole);
  const PassesKey three = key({{0, 600, 1000}, {0, 1000}});
  EXPECT_EQ(three.documents, 4);
  EXPECT_EQ(three.longest, 1000);
  EXPECT_EQ(key({{0, 500, 1000}, {0, 700, 1000}}), three);
  const PassesKey five = key({{0, 300, 600, 1000}, {0, 500, 1000}});
  EXPECT_EQ(five.documents, 16);
  EXPECT_EQ(five.longest, 512);
  EXPECT_EQ(key({{0, 513, 600, 1000}, {0, 500, 1000}}).longest, 1000);
  std::vector<std::int64_t> tokens(1001);
  for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<std::int64_t>(i);
  EXPECT_EQ(key({tokens, tokens}).longest, 128);
  EXPECT_EQ(key({tokens, tokens}).documents, 4096);
  batch.target_weights = at::ones({2, 1000});
  EXPECT_NE(key({}), whole);
}

TEST(GraphMemory, AutoUsesATenthOfTheDeviceAndOtherPassesNeedAsMuchAsGraphs) {
  const auto reason = [](const GraphMemory& memory, const std::string& mode) -> std::string {
    try {
      check_graph_memory(memory, mode);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::resource);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(reason({.graphs = 9, .left = 50, .total = 100}, "auto"), "");
  EXPECT_NE(reason({.graphs = 11, .left = 50, .total = 100}, "auto").find("a tenth"),
            std::string::npos);
  EXPECT_EQ(reason({.graphs = 11, .left = 50, .total = 100}, "true"), "");
  for (const char* mode : {"auto", "true"}) {
    EXPECT_NE(reason({.graphs = 9, .left = 8, .total = 100}, mode).find("too little"),
              std::string::npos);
  }
}

/// Cross entropy that makes an error in captured passes only.
class FaultyObjective final : public objective::Objective {
 public:
  enum class Fault { none, first_targets, host_scale, throws, throws_late, no_loss, no_grads };

  FaultyObjective(objective::CrossEntropy& inner, Fault fault) : inner_(inner), fault_(fault) {}

  [[nodiscard]] bool keeps_values_on_device() const override { return true; }

  [[nodiscard]] bool has_fixed_shapes() const override { return true; }

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     objective::ObjectiveGrads& saved) override {
    parallel::Microbatch given = batch;
    if (!first_.defined()) first_ = batch.targets.clone();
    const bool is_captured = batch.grad_scale.defined();
    num_captured_ += is_captured ? 1 : 0;
    if (!is_captured && before_forward) before_forward();
    if (is_captured &&
        (fault_ == Fault::throws || (fault_ == Fault::throws_late && num_captured_ > 1)))
      throw std::runtime_error("cannot be captured");
    if (is_captured && fault_ == Fault::first_targets) given.targets = first_;
    if (is_captured && fault_ == Fault::host_scale) given.grad_scale = scale_;
    if (!is_captured) scale_ = at::scalar_tensor(grad_scale, at::kDouble);
    const at::Tensor loss = inner_.forward(given, hidden, grad_scale, saved);
    if (is_captured && fault_ == Fault::no_grads) saved.grad_hidden.mul_(1.01);
    return is_captured && fault_ == Fault::no_loss ? loss * 1.01 : loss;
  }

  void backward(objective::ObjectiveGrads& saved) override { inner_.backward(saved); }

  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override {
    return inner_.evaluate(batch, hidden);
  }

  std::function<void()> before_forward;  // runs in passes without a graph

 private:
  objective::CrossEntropy& inner_;
  Fault fault_;
  int num_captured_ = 0;
  at::Tensor first_;
  at::Tensor scale_;
};

/// A step with a faulty objective.
struct FaultyTrial {
  FaultyTrial(comm::Communicator& world, int zero, FaultyObjective::Fault fault,
              const GraphUse& use)
      : trial(world, shape_with(zero)),
        loss(trial.objective, fault),
        step({trial.model, loss, *trial.optimizer, trial.scaler, trial.mesh, measures, nullptr, 0,
              false, use},
             1) {}

  static TrialShape shape_with(int zero) {
    TrialShape shape = graph_trial_shape(at::kFloat);
    shape.parallel.zero = zero;
    return shape;
  }

  /// Runs an update of four micro-batches on each rank.
  double norm_of_update(int update) {
    constexpr int kMicroBatches = 4;
    const int ranks = trial.mesh.world().size();
    std::vector<data::Batch> batches;
    std::int64_t terms = 0;
    for (int i = 0; i < kMicroBatches * ranks; ++i) {
      data::Batch batch = Updates{.micro_batches = kMicroBatches * ranks, .packed = false}.batch(
          update, i, trial.model.config());
      terms += batch.num_targets;
      if (i % ranks == trial.mesh.world().rank()) batches.push_back(std::move(batch));
    }
    return step.run(batches, terms, update, update, 1e-2).grad_norm;
  }

  TrialModel trial;
  Measures measures;
  FaultyObjective loss;
  Step step;
};

/// The results of three updates with a faulty objective.
struct FaultyCourse {
  std::vector<double> norms;
  std::int64_t num_launches = 0;
  std::string failure;
};

FaultyCourse faulty_course(comm::Communicator& world, int zero, FaultyObjective::Fault fault,
                           const GraphUse& use) {
  FaultyTrial trial(world, zero, fault, use);
  FaultyCourse course;
  for (int update = 1; update <= 3; ++update) course.norms.push_back(trial.norm_of_update(update));
  if (const CapturedPasses* const captured = trial.step.captured_passes()) {
    course.num_launches = captured->num_launches();
    course.failure = captured->failure();
  }
  return course;
}

using Fault = FaultyObjective::Fault;

TEST(CapturedPasses, AGraphWithOldInputsIsFoundAndNotUsed) {
  const std::vector<std::pair<Fault, std::string>> faults{
      {Fault::none, ""},
      {Fault::first_targets, "differ from the expected ones"},
      {Fault::host_scale, "the gradients of a launched micro-batch"},
      {Fault::throws, "cannot be captured"},
      {Fault::throws_late, "cannot be captured"},
      {Fault::no_loss, "the losses of a launched micro-batch"},
      {Fault::no_grads, "the gradients of a launched micro-batch"}};
  comm::SelfCommunicator world;
  for (const auto& [fault, reason] : faults) {
    const FaultyCourse expected = faulty_course(world, 0, fault, {});

    const FaultyCourse graphs = faulty_course(world, 0, fault, kGraphs);

    EXPECT_EQ(graphs.norms, expected.norms) << reason;
    EXPECT_EQ(graphs.num_launches, fault == Fault::none ? 3 * 4 - 5 : 0) << reason;
    EXPECT_EQ(graphs.failure.empty(), fault == Fault::none) << graphs.failure;
    EXPECT_NE(graphs.failure.find(reason), std::string::npos) << graphs.failure;
  }
}

TEST(CapturedPasses, AGraphIsCheckedIfTheFirstMicroBatchGathersWeights) {
  const std::vector<std::pair<Fault, std::string>> faults{
      {Fault::none, ""},
      {Fault::first_targets, "the losses of a launched micro-batch"},
      {Fault::host_scale, "the gradients of a launched micro-batch"},
      {Fault::throws, "cannot be captured"},
      {Fault::throws_late, "cannot be captured"},
      {Fault::no_loss, "the losses of a launched micro-batch"}};
  for (const auto& [fault, reason] : faults) {
    const auto courses = [fault = fault](const GraphUse& use) {
      return on_two_ranks<FaultyCourse>(
          [&](comm::Communicator& world) { return faulty_course(world, 1, fault, use); });
    };
    const std::array<FaultyCourse, 2> expected = courses({});

    const std::array<FaultyCourse, 2> graphs = courses(kGraphs);

    for (std::size_t rank : {0, 1}) {
      const FaultyCourse& one = graphs.at(rank);
      EXPECT_EQ(one.norms, expected.at(rank).norms) << reason;
      EXPECT_EQ(one.num_launches, fault == Fault::none ? 3 * 2 - 4 : 0) << reason;
      EXPECT_EQ(one.failure.empty(), fault == Fault::none) << one.failure;
      EXPECT_NE(one.failure.find(reason), std::string::npos) << one.failure;
    }
  }
}

TEST(CapturedPasses, PassesWithoutAGraphNeedNoMoreMemoryThanInARunWithoutGraphs) {
  comm::SelfCommunicator world;
  std::int64_t bytes_of_grads = 0;
  const auto bytes_of_passes = [&](const GraphUse& use) {
    const device::MemoryCount count;
    FaultyTrial trial(world, 0, Fault::none, use);
    bytes_of_grads = 4 * trial.trial.registry.layout().trainable_count();
    std::vector<std::int64_t> bytes;
    trial.loss.before_forward = [&] { bytes.push_back(count.live_bytes()); };
    for (int update = 1; update <= 3; ++update) (void)trial.norm_of_update(update);
    return bytes;
  };
  const std::vector<std::int64_t> expected = bytes_of_passes({});

  const std::vector<std::int64_t> graphs = bytes_of_passes(kGraphs);

  ASSERT_EQ(graphs.size(), 5U);  // the last one is checked
  for (std::size_t i = 0; i < graphs.size(); ++i)
    EXPECT_LT(graphs[i] - expected[i], bytes_of_grads / 4) << i;
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
