/// Trains on a GPU while LibTorch throws on every operation that synchronizes with the device, like
/// torch.cuda.set_sync_debug_mode("error"). unit/train/host_waits_test checks whole steps on a CPU.

#include <ATen/ATen.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gtest/gtest.h>

#include "comm/self/self_communicator.hpp"
#include "device/device.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "train/step/microbatches.hpp"
#include "train/verify/trial_model.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme::testing {
namespace {

/// While it exists, synchronizing CUDA calls throw.
class ForbidSync {
 public:
  ForbidSync() { set(c10::cuda::SyncDebugMode::L_ERROR); }

  ~ForbidSync() { set(c10::cuda::SyncDebugMode::L_DISABLED); }

  ForbidSync(const ForbidSync&) = delete;
  ForbidSync& operator=(const ForbidSync&) = delete;

 private:
  static void set(c10::cuda::SyncDebugMode mode) {
    c10::cuda::warning_state().set_sync_debug_mode(mode);
  }
};

/// Runs forward, backward and the optimizer for one update of two micro-batches. Returns the loss
/// sum on the device.
at::Tensor update(train::TrialModel& trial, objective::Objective& objective, std::int64_t step) {
  std::vector<data::Batch> batches;
  const model::ModelConfig& config = trial.model.config();
  for (std::int64_t i = 0; i < 2; ++i) {
    data::Batch batch = train::make_rows({3 * i, 3 * i + 4}, config.max_seq_len, config.vocab_size);
    batch.update_samples = 4;
    batch.update_batches = 2;
    batches.push_back(std::move(batch));
  }
  const auto micro_batches =
      train::make_microbatches(batches, trial.registry.device(), step, config.moe, 1, trial.mesh);
  const pipeline::Schedule schedule = parallel::stage_schedule(trial.mesh.config(), 2);
  parallel::StageP2P links(trial.mesh.group(parallel::Axis::pp), schedule.placement);
  train::StageExecutor passes(trial.model, objective, links, 0);
  train::ActivationCount none(trial.registry.weights(), false);
  at::Tensor loss =
      at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(trial.registry.device()));
  trial.registry.on_ready([](parallel::ParamId) {});
  trial.registry.begin_update(2);
  const train::ActionHooks hooks{[](auto, auto) { return false; }, [] {}, [](bool) {}, {}};
  passes.run(schedule, micro_batches, 0.01, hooks, none, loss);
  trial.registry.fetch_grads();
  trial.optimizer->step(step, 1e-3);
  trial.registry.refresh_trainable();
  return loss;
}

/// Returns the losses of two updates without synchronization, after one that may allocate.
std::vector<double> losses(const train::TrialShape& shape, objective::LossRows rows) {
  comm::SelfCommunicator world;
  train::TrialModel trial(world, shape);
  objective::CrossEntropy objective(trial.registry, trial.model.head_weight(), shape.path, {},
                                    rows);
  std::vector<at::Tensor> sums{update(trial, objective, 1)};
  {
    const ForbidSync forbidden;
    EXPECT_THROW(static_cast<void>(sums[0].item<double>()), c10::Error);
    for (std::int64_t step = 2; step <= 3; ++step) sums.push_back(update(trial, objective, step));
  }
  std::vector<double> values;
  for (const at::Tensor& sum : sums) values.push_back(sum.item<double>());
  return values;
}

train::TrialShape shape_of(bool experts) {
  train::TrialShape shape;
  shape.model = train::small_model_like(model::model_preset("tiny"), {});
  shape.model.hidden_size = 64;
  shape.model.head_dim = 16;
  if (experts) {
    shape.model.moe.num_experts = 4;
    shape.model.moe.moe_intermediate_size = 32;
  }
  shape.dtypes = {at::kBFloat16, at::kFloat};
  shape.path = ops::Path::fast;
  shape.device = device::choose_device("cuda", 0);
  return shape;
}

TEST(GpuSync, TwoStepsOfADenseModelDoNotSynchronize) {
  for (const auto rows : {objective::LossRows::all, objective::LossRows::targets}) {
    const std::vector<double> all = losses(shape_of(false), rows);
    EXPECT_LT(all.back(), all.front());
  }
}

TEST(GpuSync, UpdatesOfAStepStartWithoutASynchronization) {
  comm::SelfCommunicator world;
  train::TrialModel trial(world, shape_of(/*experts=*/false));
  const model::ModelConfig& config = trial.model.config();
  const std::vector<data::Batch> batches{
      train::make_rows({3, 4}, config.max_seq_len, config.vocab_size)};
  const std::int64_t terms = batches[0].num_targets;
  std::vector<double> losses{trial.step.run(batches, terms, 1, 1, 1e-3).loss_sum};
  ASSERT_TRUE(trial.step.starts_ahead()) << "the kernels of AdamW are not available";
  {
    const ForbidSync forbidden;
    ASSERT_TRUE(trial.step.start(
        batches, terms, 2, [] { return 2; }, 1e-3));
    ASSERT_TRUE(trial.step.start(
        batches, terms, 3,
        [&] {
          losses.push_back(trial.step.finish().loss_sum);
          return 3;
        },
        1e-3));
    losses.push_back(trial.step.finish().loss_sum);
  }

  EXPECT_LT(losses[1], losses[0]);
  EXPECT_LT(losses[2], losses[1]);
}

TEST(GpuSync, TwoStepsWithExpertsDoNotSynchronize) {
  const int generation = ops::cuda_generation(device::choose_device("cuda", 0));
  if (generation != 9 && generation != 10)
    GTEST_SKIP() << "ATen has grouped products for compute capability 9 and 10 only";
  const std::vector<double> all = losses(shape_of(true), objective::LossRows::all);
  EXPECT_LT(all.back(), all.front());
}

}  // namespace
}  // namespace trireme::testing
