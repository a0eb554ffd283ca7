/// Trains with graphs that have errors, on a CPU: their checks must find the errors.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <sstream>

#include "comm/self/self_communicator.hpp"
#include "device/memory_count.hpp"
#include "train/step/captured_passes.hpp"
#include "unit/train/captured_trial.hpp"

namespace trireme::train {
namespace {

/// Cross entropy that makes an error in captured passes only.
class FaultyObjective final : public objective::Objective {
 public:
  enum class Fault {
    none,
    first_targets,
    host_scale,
    throws,
    throws_late,
    no_memory,
    no_loss,
    no_grads
  };

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
    if (is_captured && fault_ == Fault::no_memory) fail(ErrorKind::resource, "no memory");
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

TEST(CapturedPasses, OneRankWarnsThatGraphsAreOffAndAutoDoesNotWarnOfMemory) {
  const auto lines = [](Fault fault, const std::string& mode) {
    ::testing::internal::CaptureStderr();
    (void)on_two_ranks<FaultyCourse>([&](comm::Communicator& world) {
      return faulty_course(world, 0, fault, {.mode = mode, .on_cpu = true});
    });
    const std::string log = ::testing::internal::GetCapturedStderr();
    std::array<int, 2> count{};  // warnings, then lines of any level
    std::istringstream stream(log);
    for (std::string line; std::getline(stream, line);) {
      if (line.find("CUDA graphs of micro-batches are off") == std::string::npos) continue;
      count[0] += line.find(" warning ") != std::string::npos ? 1 : 0;
      ++count[1];
    }
    return count;
  };
  // Both ranks are threads of one process, which logs as rank 0.
  EXPECT_EQ(lines(Fault::no_loss, "auto"), (std::array{1, 2}));
  EXPECT_EQ(lines(Fault::no_memory, "true"), (std::array{1, 2}));
  EXPECT_EQ(lines(Fault::no_memory, "auto"), (std::array{0, 2}));
}

TEST(CapturedPasses, ALogLineSaysWhichMicroBatchesAreLaunched) {
  const auto num_lines = [](Fault fault) {
    ::testing::internal::CaptureStderr();
    (void)on_two_ranks<FaultyCourse>(
        [&](comm::Communicator& world) { return faulty_course(world, 0, fault, kGraphs); });
    const std::string log = ::testing::internal::GetCapturedStderr();
    int count = 0;
    std::istringstream stream(log);
    for (std::string line; std::getline(stream, line);)
      count += line.ends_with("documents are launched as a CUDA graph") ? 1 : 0;
    return count;
  };
  EXPECT_EQ(num_lines(Fault::none), 2);  // both ranks log
  EXPECT_EQ(num_lines(Fault::no_loss), 0);
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

}  // namespace
}  // namespace trireme::train
