/// Communication must not change numbers. A network of small integers, with sums that are exact in
/// fp32, gives the same bits on every layout. It uses the same building blocks as the transformer:
/// units, gathers, linear layers and their gradients, tensor and sequence parallelism, sharded
/// tokens, gradient sums, norm and optimizer. It has no operation that rounds (softmax, norms).

#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <iostream>

#include "comm/thread/thread_world.hpp"
#include "core/by_name.hpp"
#include "model/layer.hpp"
#include "model/weighted.hpp"
#include "optim/grad_norm.hpp"
#include "optim/optimizer.hpp"
#include "parallel/collectives.hpp"
#include "parallel/context/shard_sequence.hpp"
#include "parallel/recompute.hpp"
#include "parallel/tensor/tensor_group.hpp"
#include "parallel/units/grad_reduction.hpp"
#include "support/layouts/layout_cases.hpp"

namespace trireme::testing {
namespace {

constexpr std::int64_t kRows = 24;  // rows of one update
constexpr std::int64_t kLength = 48;
constexpr std::int64_t kWidth = 4;
constexpr std::int64_t kHidden = 9;  // odd, like kVocab
constexpr std::int64_t kVocab = 11;
constexpr double kRate = 0x1p-12;

/// Returns -1, 0 or 1 for each element.
at::Tensor signs(const at::Tensor& numbers, at::ScalarType dtype) {
  return numbers.remainder(3).sub(1).to(dtype);
}

/// Computes x + B (relu(A x') * (C x')), x' = R x.
class ExactLayer : public model::Layer {
 public:
  ExactLayer(parallel::ParamRegistry& registry, const parallel::TensorGroup& tensor)
      : registry_(registry), tensor_(tensor) {
    registry.begin_unit("layer");
    whole_ = {registry.declare(
        {.name = "whole", .shape = {kWidth, kWidth}, .partial = tensor.sequence_parallel()})};
    column_ = {
        registry.declare({.name = "a", .shape = {kHidden, kWidth}, .split = parallel::DimSplit{0}}),
        2};
    registry.declare({.name = "c",
                      .shape = {kHidden, kWidth},
                      .split = parallel::DimSplit{0},
                      .fuse_with_previous = true});
    row_ = {registry.declare(
        {.name = "b", .shape = {kWidth, kHidden}, .split = parallel::DimSplit{1}})};
  }

  [[nodiscard]] at::Tensor forward(const parallel::Microbatch&, const at::Tensor& x,
                                   std::span<const at::Tensor> /*sources*/) const override {
    const at::Tensor own = model::weighted::linear(x, registry_, whole_);
    const std::vector<at::Tensor> parts =
        model::weighted::column_parallel_linear(tensor_, own, registry_, column_).chunk(2, -1);
    return x + model::weighted::row_parallel_linear(tensor_, parts[0].relu() * parts[1], registry_,
                                                    row_);
  }

 private:
  parallel::ParamRegistry& registry_;
  parallel::TensorGroup tensor_;
  parallel::WeightRef whole_;
  parallel::WeightRef column_;
  parallel::WeightRef row_;
};

/// A layer between an embedding and a head, which are tied and sharded by vocabulary. The loss is
/// the sum of all logits with signs.
class ExactNet {
 public:
  ExactNet(parallel::ParamRegistry& registry, const parallel::TensorGroup& tensor)
      : registry_(registry), tensor_(tensor) {
    registry.begin_unit("embedding");
    table_ = declare_table();
    layer_ = std::make_unique<ExactLayer>(registry, tensor);
    declare_table();  // the head uses the table again
  }

  /// Runs forward and backward. Returns this rank's part of the loss.
  [[nodiscard]] at::Tensor run(const parallel::Microbatch& batch, parallel::Recompute recompute) {
    const at::NoGradGuard no_grad;
    const at::ScalarType dtype = registry_.dtypes().compute;
    registry_.weights().begin({0, 1, 0, 1, 0});
    const parallel::Slice& slice = registry_.layout().param(table_).slice;
    const at::Tensor classes = at::arange(slice.offset[0], slice.offset[0] + slice.extent[0]);
    const at::Tensor chosen = batch.tokens.unsqueeze(-1).eq(classes).to(dtype);  // [B, T, V/t]
    model::LayerActivations saved;
    at::Tensor x;
    {
      const parallel::UnitUse use(registry_.weights(), 0);
      x = tensor_.sum(chosen.matmul(registry_.weight(table_)));
    }
    {
      const parallel::UnitUse use(registry_.weights(), 1);
      x = tensor_.whole(model::layer_forward(*layer_, batch, x, recompute, saved));
    }
    const at::Tensor sample = batch.samples.view({-1, 1, 1});
    const at::Tensor place = batch.dropout_positions.unsqueeze(-1);
    const at::Tensor grad_logits = signs(
        sample * sample * 7 + place * 5 + classes * classes * 3 + sample * place * classes, dtype);
    at::Tensor loss;
    at::Tensor grad;
    {
      const parallel::UnitUse use(registry_.weights(), 0);
      const at::Tensor table = registry_.weight(table_);
      loss = x.matmul(table.t()).mul(grad_logits).sum();
      grad = tensor_.sum(grad_logits.matmul(table));
      registry_.add_gradient_of_linear({table_}, x, grad_logits);
    }
    {
      const parallel::UnitUse use(registry_.weights(), 1);
      grad = model::layer_backward(*layer_, batch, saved, grad);
    }
    const parallel::UnitUse use(registry_.weights(), 0);
    const at::Tensor whole = tensor_.whole(grad);
    registry_.add_gradient({table_}, chosen.flatten(0, 1).t().matmul(whole.flatten(0, 1)));
    return loss;
  }

 private:
  parallel::ParamId declare_table() {
    return registry_.declare(
        {.name = "table", .shape = {kVocab, kWidth}, .split = parallel::DimSplit{0}});
  }

  parallel::ParamRegistry& registry_;
  parallel::TensorGroup tensor_;
  parallel::ParamId table_ = 0;
  std::unique_ptr<ExactLayer> layer_;
};

parallel::Microbatch rows_from(std::int64_t first, std::int64_t count) {
  parallel::Microbatch batch;
  batch.samples = at::arange(first, first + count);
  batch.dropout_positions = at::arange(kLength).expand({count, kLength});
  const at::Tensor sample = batch.samples.unsqueeze(-1);
  batch.tokens =
      (sample * sample * 3 + batch.dropout_positions * 5 + sample * batch.dropout_positions)
          .remainder(kVocab);
  batch.targets = batch.tokens;
  batch.positions = batch.dropout_positions;
  return batch;
}

struct ExactTrace {
  double loss = 0;
  double norm = 0;
  at::Tensor grads;
  at::Tensor weights;
};

struct ExactLayout {
  parallel::ParallelConfig parallel = {};
  std::vector<int> node_of_rank = {};
  std::int64_t accumulation = 1;
};

/// Runs one update of plain SGD.
ExactTrace train_exactly(comm::Communicator& world, const ExactLayout& layout,
                         at::ScalarType dtype = at::kFloat) {
  at::set_num_threads(1);
  const parallel::Mesh mesh(world, layout.parallel, layout.node_of_rank);
  parallel::ParamRegistry registry;
  ExactNet net(registry, {mesh.group(parallel::Axis::tp), layout.parallel.sequence_parallel,
                          layout.parallel.tp_chunks});
  registry.allocate(mesh, {dtype, dtype}, at::kCPU);
  set_weights(registry, [&](parallel::ParamId id) {
    const std::int64_t count = parallel::Slice::whole(registry.spec(id).shape).count();
    const at::Tensor number = at::arange(count) + 11 * static_cast<std::int64_t>(id);
    return signs(number * number * 7 + number.div(5, "floor"), dtype);
  });
  optim::OptimConfig optim = optim::optimizer_defaults("sgd");
  for (optim::OptimizerKey& key : optim.keys)
    if (key.name == "weight_decay") key.value = 0.0;
  const auto optimizer = optim::make_optimizer(optim, registry);
  const auto reduction = parallel::make_grad_reduction(registry, mesh);
  registry.on_ready([&](parallel::ParamId id) { reduction->ready(id); });

  const std::int64_t share = kRows / mesh.size(parallel::Axis::dp) / layout.accumulation;
  at::Tensor loss = at::zeros({1}, at::kDouble);
  reduction->begin();
  registry.begin_update(static_cast<int>(layout.accumulation));
  for (std::int64_t i = 0; i < layout.accumulation; ++i) {
    const std::int64_t first = (mesh.rank(parallel::Axis::dp) * layout.accumulation + i) * share;
    loss += net.run(parallel::shard_sequence(rows_from(first, share), mesh),
                    by_name<parallel::Recompute>(parallel::kRecomputes, layout.parallel.recompute));
  }
  reduction->finish();
  ExactTrace trace;
  trace.norm = optim::summarize_grads(registry, world, loss.squeeze()).norm;
  trace.grads = parallel::gathered_grads(registry, world);
  registry.fetch_grads();
  optimizer->step(1, kRate);
  registry.refresh_weights();
  trace.weights = parallel::gathered_weights(registry, world);
  parallel::all_reduce(world, loss, comm::ReduceOp::sum, "loss")->wait();
  trace.loss = loss.item<double>();
  return trace;
}

ExactTrace train_exactly(int ranks, const ExactLayout& layout, at::ScalarType dtype = at::kFloat) {
  ExactTrace trace;
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    const ExactTrace own = train_exactly(world, layout, dtype);
    if (world.rank() == 0) trace = own;
  });
  return trace;
}

/// Expects `trace` to have the same bits.
void expect_bits(const ExactTrace& trace, const ExactTrace& expected, const std::string& name) {
  EXPECT_EQ(trace.loss, expected.loss) << name;
  EXPECT_EQ(trace.norm, expected.norm) << name;
  EXPECT_TRUE(trace.grads.equal(expected.grads)) << name;
  EXPECT_TRUE(trace.weights.equal(expected.weights)) << name;
}

TEST(ExactLayouts, RoundNothingOnOneProcess) {
  const ExactTrace narrow = train_exactly(1, {});
  const ExactTrace wide = train_exactly(1, {}, at::kDouble);

  expect_bits(narrow, wide, "fp32 next to fp64");
  EXPECT_GT(narrow.grads.abs().max().item<double>(), 100);
  EXPECT_GT(narrow.grads.ne(0).sum().item<std::int64_t>(), narrow.grads.numel() / 2);
  EXPECT_GT(narrow.norm, 0);
}

TEST(ExactLayouts, HaveTheBitsOfOneProcess) {
  const ExactTrace expected = train_exactly(1, {});
  std::size_t count = 0;
  for (const LayoutCase& one : all_layout_cases()) {
    const bool rows_divide = kRows % (one.dp * one.accumulation) == 0;
    if (one.sgd || one.form != 0 || one.recompute == 1 || !rows_divide) continue;
    const train::TrialPlan plan = layout_plan(one);
    ExactLayout layout{plan.parallel, plan.node_of_rank, one.accumulation};
    layout.parallel.zero_persist = 0;  // all parameters are small
    expect_bits(train_exactly(one.ranks(), layout), expected, name_of(one));
    ++count;
  }
  std::cout << count << " layouts\n";
  EXPECT_GT(count, 200U);
}

}  // namespace
}  // namespace trireme::testing
