#pragma once
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "comm/thread/thread_world.hpp"
#include "objective/head.hpp"
#include "parallel/context/shard_sequence.hpp"

/// Compares an objective with autograd in fp64, on thread ranks that shard vocabulary and rows.
namespace trireme::testing {

inline constexpr std::int64_t kLength = 24;  // tokens per row
inline constexpr std::int64_t kWidth = 6;
inline constexpr std::int64_t kClasses = 13;

struct Ranks {
  int tp = 1;
  int cp = 1;
};

inline const std::vector<Ranks> kLayouts{{1, 1}, {2, 1}, {1, 2}, {2, 2}, {3, 1}};

inline std::string name(const Ranks& ranks) {
  return "tp " + std::to_string(ranks.tp) + " cp " + std::to_string(ranks.cp);
}

inline at::Generator random_of(std::uint64_t seed) {
  return at::detail::createCPUGenerator(seed);
}

inline at::Tensor normal(at::IntArrayRef shape, std::uint64_t seed) {
  return at::randn(shape, random_of(seed), at::kDouble);
}

/// Returns `rows` rows of random tokens and targets. Every third target is masked.
inline parallel::Microbatch batch_of_rows(std::int64_t rows) {
  parallel::Microbatch batch;
  batch.tokens = at::zeros({rows, kLength}, at::kLong);
  batch.targets = at::randint(kClasses, {rows, kLength}, random_of(11), at::kLong);
  batch.targets.flatten().slice(0, 1, rows * kLength, 3).fill_(objective::kIgnoredTarget);
  batch.positions = at::arange(kLength).expand({rows, kLength});
  batch.dropout_positions = batch.positions;
  batch.step = 1;
  return batch;
}

/// One rank with its shard of the head and of a batch.
struct RankOfLayout {
  RankOfLayout(comm::Communicator& world, const Ranks& ranks, const at::Tensor& weight,
               device::ParamDTypes dtypes = {at::kDouble, at::kDouble}, double softcap = 0)
      : mesh(world, config(ranks)), tensor(mesh.group(parallel::Axis::tp), false) {
    registry.declare({.name = "lm_head.weight",
                      .shape = weight.sizes().vec(),
                      .split = parallel::DimSplit{.dim = 0, .axis = parallel::Axis::tp},
                      .softcap = softcap});
    registry.allocate(mesh, dtypes, at::kCPU);
    const parallel::Slice& slice = registry.layout().param(0).slice;
    first = slice.offset[0];
    classes = slice.extent[0];
    registry.main(0).copy_(weight.narrow(0, first, classes));
    registry.refresh_weights();
    registry.begin_update(1);
  }

  static parallel::ParallelConfig config(const Ranks& ranks) {
    parallel::ParallelConfig config;
    config.tp = ranks.tp;
    config.cp = ranks.cp;
    return config;
  }

  /// Takes this rank's shard of a tensor [B, T, ..] of the whole batch.
  [[nodiscard]] at::Tensor own(const at::Tensor& whole, const parallel::Microbatch& batch) const {
    if (mesh.size(parallel::Axis::cp) == 1) return whole;
    return parallel::select_positions(
        whole, batch.positions_of_ranks[static_cast<std::size_t>(mesh.rank(parallel::Axis::cp))]);
  }

  parallel::Mesh mesh;
  parallel::TensorGroup tensor;
  parallel::ParamRegistry registry;
  std::int64_t first = 0;    // the first of this rank's classes
  std::int64_t classes = 0;  // the number of this rank's classes
};

/// Loss and gradients of a whole batch.
struct LossAndGrads {
  at::Tensor loss;
  at::Tensor hidden;  // [B, T, D]
  at::Tensor weight;  // [V, D]
};

/// Computes loss and gradients of loss(hidden, weight) with autograd.
inline LossAndGrads by_autograd(
    const at::Tensor& hidden, const at::Tensor& weight,
    const std::function<at::Tensor(const at::Tensor&, const at::Tensor&)>& loss_of) {
  const at::Tensor x = hidden.to(at::kDouble, false, true).requires_grad_();
  const at::Tensor w = weight.to(at::kDouble, false, true).requires_grad_();
  const at::Tensor loss = loss_of(x, w);
  const auto grads = torch::autograd::grad({loss}, {x, w}, {}, {}, false, /*allow_unused=*/true);
  const auto or_zeros = [](const at::Tensor& grad, const at::Tensor& like) {
    return grad.defined() ? grad : at::zeros_like(like);
  };
  return {loss.detach(), or_zeros(grads[0], hidden.to(at::kDouble)),
          or_zeros(grads[1], weight.to(at::kDouble))};
}

using MakeObjective = std::function<std::unique_ptr<objective::Objective>(RankOfLayout&)>;

/// Computes loss and gradients on the ranks of a layout, gathered.
inline LossAndGrads by_ranks(const Ranks& ranks, const parallel::Microbatch& batch,
                             const at::Tensor& hidden, const at::Tensor& weight, double grad_scale,
                             const MakeObjective& make,
                             device::ParamDTypes dtypes = {at::kDouble, at::kDouble},
                             double softcap = 0) {
  const auto count = static_cast<std::size_t>(ranks.tp * ranks.cp);
  std::vector<LossAndGrads> parts(count);
  comm::run_ranks(static_cast<int>(count), [&](comm::Communicator& world) {
    RankOfLayout rank(world, ranks, weight, dtypes, softcap);
    const parallel::Microbatch mine = parallel::shard_sequence(batch, rank.mesh);
    const auto objective = make(rank);
    objective::ObjectiveGrads saved;
    const at::Tensor own_hidden = rank.own(hidden, mine).to(dtypes.compute);
    const at::Tensor loss = objective->forward(mine, own_hidden, grad_scale, saved);
    const at::Tensor grad_hidden = saved.grad_hidden.to(at::kDouble);
    objective->backward(saved);
    EXPECT_FALSE(saved.grad_hidden.defined());
    LossAndGrads part{at::zeros({}, at::kDouble), at::zeros_like(hidden, at::kDouble),
                      at::zeros_like(weight, at::kDouble)};
    if (rank.mesh.rank(parallel::Axis::tp) == 0) part.loss.copy_(loss);
    // Places the tokens by their numbers in the whole batch.
    const at::Tensor numbers =
        rank.own(at::arange(batch.tokens.numel()).view_as(batch.tokens), mine).flatten();
    part.hidden.view({-1, hidden.size(-1)})
        .index_copy_(0, numbers, grad_hidden.reshape({-1, hidden.size(-1)}));
    part.weight.narrow(0, rank.first, rank.classes).copy_(rank.registry.master_grad(0));
    parts[static_cast<std::size_t>(world.rank())] = part;
  });
  LossAndGrads sum = parts[0];
  for (std::size_t i = 1; i < count; ++i) {
    sum.loss.add_(parts[i].loss);
    sum.hidden.add_(parts[i].hidden);
    sum.weight.add_(parts[i].weight);
  }
  return sum;
}

/// Expects differences of at most `bound` of the largest element.
inline void expect_close(const at::Tensor& actual, const at::Tensor& expected, double bound,
                         const std::string& what) {
  ASSERT_EQ(actual.sizes(), expected.sizes()) << what;
  const at::Tensor difference = (actual.to(at::kDouble) - expected.to(at::kDouble)).abs();
  ASSERT_TRUE(difference.isfinite().all().item<bool>()) << what << " is not finite";
  const double scale = expected.abs().max().item<double>();
  EXPECT_LE(difference.max().item<double>(), bound * std::max(scale, 1e-3)) << what;
}

inline void expect_same(const LossAndGrads& actual, const LossAndGrads& expected, double grad_scale,
                        double bound, const std::string& what) {
  expect_close(actual.loss, expected.loss, bound, what + " loss");
  expect_close(actual.hidden, expected.hidden * grad_scale, bound, what + " grad of hidden");
  expect_close(actual.weight, expected.weight * grad_scale, bound, what + " grad of head");
}

/// Compares the slope of loss(hidden, weight) along random directions, by finite differences, with
/// the gradients.
inline void expect_differences(
    const LossAndGrads& grads, const at::Tensor& hidden, const at::Tensor& weight,
    const std::function<double(const at::Tensor&, const at::Tensor&)>& loss_of) {
  constexpr double kStep = 1e-5;
  for (const std::uint64_t seed : {21, 22, 23}) {
    const at::Tensor along_hidden = normal(hidden.sizes(), seed);
    const at::Tensor along_weight = normal(weight.sizes(), seed + 10);
    const double up = loss_of(hidden + kStep * along_hidden, weight + kStep * along_weight);
    const double down = loss_of(hidden - kStep * along_hidden, weight - kStep * along_weight);
    const double slope = (grads.hidden * along_hidden).sum().item<double>() +
                         (grads.weight * along_weight).sum().item<double>();
    EXPECT_NEAR((up - down) / (2 * kStep), slope, 1e-6 * std::max(1.0, std::abs(slope)));
  }
}

}  // namespace trireme::testing
