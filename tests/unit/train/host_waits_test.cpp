/// Proves on a CPU that a training step does not make the host wait for a GPU: the step runs on
/// strict_device(), which records every wait.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/self/self_communicator.hpp"
#include "support/strict_device.hpp"
#include "train/step/captured_passes.hpp"
#include "train/verify/trial_model.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme::testing {
namespace {

/// The gradient norm and the loss: the host decides with them about clipping and about skipping a
/// step that is not finite, and logs them. late_results_test has the kernels that do it without the
/// host.
const std::string kNorm = "event";
const std::string kRouterReport = "event";  // complete when the norm is

struct Case {
  std::string name;
  device::ParamDTypes dtypes{at::kFloat, at::kFloat};
  bool experts = false;
  bool sparse_targets = false;
  bool loss_scaling = false;
  double dropout = 0;
  std::string recompute = "none";
  bool graphs = false;
};

/// The first update with a launch. Updates before it run without a graph, also the checked one.
constexpr int kFirstLaunched = train::CapturedPasses::kUsesBeforeGraph + 2;

/// Values of the second step; with graphs, of the first step that is launched.
struct Result {
  std::vector<std::string> waits;
  int uploads = 0;
  int copies_beside = 0;
  double loss = 0;
};

Result second_step(const Case& c, at::Device device, std::int64_t num_layers, int micro_batches) {
  train::TrialShape shape;
  shape.model = train::small_model_like(model::model_preset("tiny"), {});
  shape.model.num_layers = num_layers;
  shape.model.dropout = c.dropout;
  if (c.experts) {
    shape.model.moe.num_experts = 4;
    shape.model.moe.moe_intermediate_size = 32;
  }
  shape.parallel.recompute = c.recompute;
  shape.dtypes = c.dtypes;
  shape.path = ops::Path::fast;
  shape.device = device;
  comm::SelfCommunicator world;
  train::TrialModel trial(world, shape);
  objective::CrossEntropy loss(
      trial.registry, trial.model.head_weight(), shape.path, {},
      c.sparse_targets ? objective::LossRows::targets : objective::LossRows::all);
  optim::LossScaler scaler(c.loss_scaling);
  Measures measures;
  train::Step step({trial.model,
                    loss,
                    *trial.optimizer,
                    scaler,
                    trial.mesh,
                    measures,
                    nullptr,
                    0,
                    false,
                    {.mode = c.graphs ? "true" : "false", .on_cpu = true}},
                   1);
  Result result;
  for (int update = 1; update <= (c.graphs ? kFirstLaunched : 2); ++update) {
    std::vector<data::Batch> batches;
    std::int64_t terms = 0;
    for (int i = 0; i < micro_batches; ++i) {
      data::Batch batch =
          train::make_rows({3 * i, 3 * i + 4}, shape.model.max_seq_len, shape.model.vocab_size);
      batch.update_samples = 2 * micro_batches;
      batch.update_batches = micro_batches;
      terms += batch.num_targets;
      batches.push_back(std::move(batch));
    }
    const HostWaits record;
    const train::UpdateResult out = step.run(batches, terms, update, update, 1e-3);
    EXPECT_FALSE(out.skipped);
    result = {record.waits(), record.uploads(), record.copies_beside(),
              out.loss_sum / static_cast<double>(terms)};
    if (c.graphs && update == kFirstLaunched) {
      EXPECT_EQ(step.captured_passes()->num_launches(), micro_batches) << c.name;
    }
  }
  return result;
}

std::vector<Case> cases() {
  const device::ParamDTypes bf16{at::kBFloat16, at::kFloat};
  return {
      {.name = "dense fp32"},
      {.name = "dense bf16 with dropout", .dtypes = bf16, .dropout = 0.1},
      {.name = "sparse targets", .dtypes = bf16, .sparse_targets = true},
      {.name = "fp16 with loss scaling", .dtypes = {at::kHalf, at::kFloat}, .loss_scaling = true},
      {.name = "activation checkpointing", .dtypes = bf16, .recompute = "full"},
      {.name = "selective checkpointing", .dtypes = bf16, .recompute = "selective"},
      {.name = "experts", .dtypes = bf16, .experts = true},
      {.name = "experts with checkpointing", .dtypes = bf16, .experts = true, .recompute = "full"},
  };
}

TEST(HostWaits, AStepOfPackedDocumentsWaitsOnlyForItsNorm) {
  for (const Case& c : cases()) {
    const Result small = second_step(c, strict_device(), 2, 1);
    const Result large = second_step(c, strict_device(), 3, 2);

    std::vector<std::string> expected{kNorm};
    if (c.experts) expected.push_back(kRouterReport);
    EXPECT_EQ(small.waits, expected) << c.name;
    EXPECT_EQ(large.waits, expected) << c.name << ": a wait per layer or micro-batch";
    EXPECT_EQ(large.uploads, 2 * small.uploads) << c.name << ": an upload per layer";
    EXPECT_GE(small.copies_beside, 5)
        << c.name << ": tokens, targets, their index, positions, samples";
    EXPECT_EQ(large.copies_beside, 2 * small.copies_beside) << c.name;
  }
}

/// A graph repeats its copies from the host with the values of the capture. So the captured
/// passes must not copy from the host. The device of the test uploads one mask of attention, which a
/// GPU does not have; the other upload has the offsets of the documents, outside the graph.
TEST(HostWaits, ALaunchedMicroBatchReadsOnlyItsInputsFromTheHost) {
  for (Case c : cases()) {
    if (c.experts || c.sparse_targets || c.dropout > 0) continue;  // they have no graphs
    c.graphs = true;
    for (const std::int64_t layers : {2, 3}) {
      const Result launched = second_step(c, strict_device(), layers, 1);

      EXPECT_EQ(launched.waits, std::vector<std::string>{kNorm}) << c.name;
      EXPECT_EQ(launched.uploads - launched.copies_beside, 2) << c.name << ", layers " << layers;
    }
  }
}

TEST(HostWaits, TheDeviceOfTheTestComputesTheLossOfACpu) {
  for (const Case& c : cases()) {
    const double bound = c.dtypes.compute == at::kFloat ? 1e-5 : 2e-2;
    const double expected = second_step(c, at::kCPU, 2, 2).loss;
    EXPECT_NEAR(second_step(c, strict_device(), 2, 2).loss, expected, bound * expected) << c.name;
  }
}

TEST(HostWaits, NamesEveryKindOfWait) {
  const at::Tensor x = at::ones({3}).to(strict_device());
  const at::Tensor y = at::arange(3, x.options().dtype(at::kLong));

  const HostWaits record;
  EXPECT_EQ(x.sum().item<float>(), 3);
  EXPECT_EQ(x.nonzero().size(0), 3);
  EXPECT_TRUE(x.equal(x));
  EXPECT_EQ(x.to(at::kCPU)[2].item<float>(), 1);
  const at::Tensor from_host = at::ones({2}).to(x.device());
  const at::Tensor uploaded = at::ones({2}).to(x.device(), /*non_blocking=*/true);
  EXPECT_EQ(x.index({x.gt(0)}).size(0), 3);
  EXPECT_EQ(x.repeat_interleave(y).size(0), 3);
  const at::Tensor known = x.repeat_interleave(y, 0, /*output_size=*/3);

  EXPECT_EQ(record.waits(),
            (std::vector<std::string>{"aten::_local_scalar_dense", "aten::nonzero", "aten::equal",
                                      "to host [3]", "from host [2]", "aten::nonzero",
                                      "aten::index", "aten::repeat_interleave"}));
  EXPECT_EQ(record.uploads(), 1);
}

}  // namespace
}  // namespace trireme::testing
