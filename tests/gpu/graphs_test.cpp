/// Compares decoding steps and micro-batches that are launched as CUDA graphs with steps without
/// graphs, on a GPU.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/self/self_communicator.hpp"
#include "device/captured_work.hpp"
#include "device/device.hpp"
#include "device/kernel_choice.hpp"
#include "train/verify/trial_model.hpp"
#include "unit/generate/decode_steps.hpp"

namespace trireme::testing {
namespace {

/// Uses deterministic kernels in all tests of this program, as training does. The setting must be
/// made before the first product.
class DeterministicKernels : public ::testing::Environment {
 public:
  void SetUp() override {
    if (device::num_visible_gpus() > 0)
      device::use_deterministic_kernels(device::choose_device("cuda", 0));
  }
};

[[maybe_unused]] ::testing::Environment* const deterministic_kernels =
    ::testing::AddGlobalTestEnvironment(new DeterministicKernels);

TEST(GpuGraphs, LaunchedDecodingStepsEqualStepsWithoutGraphs) {
  const at::Device gpu = device::choose_device("cuda", 0);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const TwoWays steps = decode_two_ways({.dtype = dtype, .device = gpu});
    // Products of another number of rows, which cuBLAS may compute with another algorithm.
    EXPECT_LT(steps.difference, dtype == at::kFloat ? 1e-3 : 5e-2) << dtype;
    EXPECT_GT(steps.num_launches, steps.num_steps / 2) << dtype << ": graphs were given up";
  }
}

/// The results of some updates of four micro-batches.
struct TrainedWeights {
  std::vector<double> losses;
  at::Tensor weights;
  std::int64_t num_launches = 0;
  std::string failure;
};

TrainedWeights train(const train::TrialShape& shape, int num_updates) {
  comm::SelfCommunicator world;
  train::TrialModel trial(world, shape);
  TrainedWeights result;
  for (int update = 1; update <= num_updates; ++update) {
    std::vector<data::Batch> batches;
    std::int64_t targets = 0;
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t sample = 4 * (4 * update + i);
      batches.push_back(train::make_rows({sample, sample + 1, sample + 2, sample + 3},
                                         shape.model.max_seq_len, shape.model.vocab_size));
      targets += batches.back().num_targets;
    }
    const train::UpdateResult done = trial.step.run(batches, targets, update, update, 1e-3);
    result.losses.push_back(done.loss_sum / static_cast<double>(targets));
  }
  result.weights = trial.registry.master_part(0).to(at::kCPU);
  if (const train::CapturedPasses* const captured = trial.step.captured_passes()) {
    result.num_launches = captured->num_launches();
    result.failure = captured->failure();
  }
  return result;
}

TEST(GpuGraphs, LaunchedMicroBatchesTrainLikeMicroBatchesWithoutGraphs) {
  constexpr int kUpdates = 10;
  train::TrialShape shape;
  shape.model = model::model_preset("tiny");
  shape.model.max_seq_len = 256;
  shape.dtypes = {at::kBFloat16, at::kFloat};
  shape.path = ops::Path::fast;
  shape.device = device::choose_device("cuda", 0);
  for (const std::int64_t window : {0, 64}) {
    shape.model.sliding_window = window;
    shape.graphs = {.mode = "false"};
    const TrainedWeights expected = train(shape, kUpdates);
    shape.graphs = {.mode = "true"};

    const TrainedWeights graphs = train(shape, kUpdates);

    EXPECT_EQ(graphs.failure, "") << window;
    EXPECT_GT(graphs.num_launches, kUpdates) << window;
    // Attention over padded documents adds the gradients of queries in another order.
    for (std::size_t i = 0; i < expected.losses.size(); ++i)
      EXPECT_NEAR(graphs.losses[i], expected.losses[i], 1e-2 * expected.losses[i]) << i;
    const double norm = expected.weights.norm().item<double>();
    EXPECT_LT((graphs.weights - expected.weights).norm().item<double>(), 1e-2 * norm) << window;
  }
}

TEST(GpuGraphs, CapturedWorkOfOnePoolSharesItsMemory) {
  const at::Device gpu = device::choose_device("cuda", 0);
  constexpr std::int64_t kElements = std::int64_t{1} << 26;
  const at::Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kFloat).device(gpu));
  const auto pool = std::make_shared<device::CapturePool>(gpu);
  const auto work = [&](double value) {
    sum.copy_(at::full({kElements}, value, sum.options()).mul_(2).sum());
  };
  work(0);  // loads the kernels
  const auto free_bytes = [&] {
    device::release_cached_memory(gpu);
    return device::device_memory(gpu).available;
  };
  const double bytes = 4 * static_cast<double>(kElements);
  const double before = free_bytes();
  std::vector<device::CapturedWork> works;
  for (int i = 1; i <= 4; ++i) works.emplace_back(pool, [&work, i] { work(i); });
  EXPECT_GE(before - free_bytes(), bytes);
  EXPECT_LE(before - free_bytes(), 1.5 * bytes);
  for (std::size_t i = 0; i < works.size(); ++i) {
    works[i].launch();
    const double expected = 2.0 * static_cast<double>(kElements) * static_cast<double>(i + 1);
    EXPECT_NEAR(sum.item<double>(), expected, 1e-4 * expected) << i;
  }
  works.clear();
  works.emplace_back(pool, [&work] { work(5); });  // it takes the memory of destroyed work
  EXPECT_LE(before - free_bytes(), 1.5 * bytes);
}

}  // namespace
}  // namespace trireme::testing
