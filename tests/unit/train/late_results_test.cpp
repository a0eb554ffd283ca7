/// Proves on a CPU that with AdamW's kernel a GPU always has work: an update starts before the host
/// knows the loss and the norm of the update before it, and the results are the same. The step runs
/// on strict_device(), which records every wait, and the kernels of the optimizer run on the host.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <limits>

#include "comm/self/self_communicator.hpp"
#include "support/cuda_launcher.hpp"
#include "support/strict_device.hpp"
#include "train/verify/trial_model.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme::testing {
namespace {

constexpr int kUpdates = 4;
constexpr int kBadUpdate = 2;

/// Has the kernels of the optimizer, for every device but the CPU.
struct OptimizerKernels : HostLauncher {
  [[nodiscard]] bool serves(at::Device device) const override { return !device.is_cpu(); }

  bool has(const ops::cuda::Kernel& kernel, ops::cuda::Element, at::Device) override {
    return kernel.source == "adamw" || kernel.source == "grad_norm";
  }
};

/// Everything that some updates change or report.
struct Course {
  std::vector<train::UpdateResult> results;
  at::Tensor weights;
  at::Tensor moments;
  std::vector<std::string> waits_of_starts;
  std::vector<std::string> waits_of_finishes;
};

train::TrialShape shape_of(bool experts) {
  train::TrialShape shape;
  shape.model = train::small_model_like(model::model_preset("tiny"), {});
  if (experts) {
    shape.model.moe.num_experts = 4;
    shape.model.moe.moe_intermediate_size = 32;
  }
  shape.dtypes = {at::kBFloat16, at::kFloat};
  shape.path = ops::Path::fast;
  shape.device = strict_device();
  return shape;
}

/// Returns the micro-batches of an update. The loss of update kBadUpdate is not finite.
std::vector<data::Batch> batches_of(int update, const model::ModelConfig& config) {
  std::vector<data::Batch> batches;
  for (int i = 0; i < 2; ++i) {
    data::Batch batch = train::make_rows({3 * i + update, 3 * i + update + 4}, config.max_seq_len,
                                         config.vocab_size);
    batch.update_samples = 4;
    batch.update_batches = 2;
    if (update == kBadUpdate)
      batch.target_weights.assign(batch.tokens.size(), std::numeric_limits<float>::infinity());
    batches.push_back(std::move(batch));
  }
  return batches;
}

/// Runs the updates. With `late`, each is finished after the passes of the next one.
Course course_of(bool experts, bool late) {
  OptimizerKernels kernels;
  comm::SelfCommunicator world;
  train::TrialModel trial(world, shape_of(experts));
  EXPECT_TRUE(trial.step.starts_ahead());
  EXPECT_EQ(trial.step.reason_to_finish(), "");
  Course course;
  std::int64_t applied = 0;
  bool started = false;
  const auto finish = [&] {
    if (!started) return;
    course.results.push_back(trial.step.finish());
    if (!course.results.back().skipped) ++applied;
    started = false;
  };
  for (int update = 1; update <= kUpdates; ++update) {
    const auto batches = batches_of(update, trial.model.config());
    const std::int64_t terms = batches[0].num_targets + batches[1].num_targets;
    const auto start = [&](const std::function<void()>& before_weights_change) {
      return trial.step.start(
          batches, terms, update,
          [&] {
            before_weights_change();
            return applied + 1;
          },
          1e-2);
    };
    const HostWaits record;
    std::size_t first = 0;  // waits of the finish, if it runs in the start
    std::size_t last = 0;
    const bool done = start([&] {
      first = record.waits().size();
      finish();
      last = record.waits().size();
    });
    EXPECT_TRUE(done);
    started = true;
    const std::vector<std::string> waits = record.waits();
    for (std::size_t i = 0; i < waits.size(); ++i)
      (i >= first && i < last ? course.waits_of_finishes : course.waits_of_starts)
          .push_back(waits[i]);
    if (!late) finish();
  }
  finish();
  course.weights = trial.registry.master_part(0).to(at::kCPU);
  course.moments = trial.optimizer->slots()[0].flat.to(at::kCPU);
  return course;
}

TEST(LateResults, AnUpdateStartsWithoutAWaitAndFinishesWithOneForItsNumbers) {
  for (const bool experts : {false, true}) {
    const Course course = course_of(experts, /*late=*/true);

    EXPECT_EQ(course.waits_of_starts, std::vector<std::string>{}) << experts;
    const std::size_t reads = experts ? 2 : 1;  // the routing measures are complete by then
    EXPECT_EQ(course.waits_of_finishes, std::vector<std::string>(reads * (kUpdates - 1), "event"))
        << experts;
  }
}

TEST(LateResults, WeightsNormsAndSkippedUpdatesAreThoseOfResultsReadAtOnce) {
  for (const bool experts : {false, true}) {
    const Course late = course_of(experts, /*late=*/true);
    const Course at_once = course_of(experts, /*late=*/false);

    ASSERT_EQ(late.results.size(), std::size_t{kUpdates});
    for (std::size_t i = 0; i < kUpdates; ++i) {
      const bool is_bad = i + 1 == kBadUpdate;
      EXPECT_EQ(late.results[i].skipped, is_bad) << i;
      EXPECT_EQ(at_once.results[i].skipped, is_bad) << i;
      if (is_bad) continue;
      EXPECT_EQ(late.results[i].loss_sum, at_once.results[i].loss_sum) << i;
      EXPECT_EQ(late.results[i].grad_norm, at_once.results[i].grad_norm) << i;
    }
    EXPECT_TRUE(late.weights.equal(at_once.weights)) << experts;
    EXPECT_TRUE(late.moments.equal(at_once.moments)) << experts;
    EXPECT_TRUE(late.weights.isfinite().all().item<bool>());
  }
}

}  // namespace
}  // namespace trireme::testing
