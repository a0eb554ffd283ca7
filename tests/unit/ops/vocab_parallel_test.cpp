#include "objective/vocab_parallel.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"

namespace trireme::ops {
namespace {

constexpr std::int64_t kRows = 11;
constexpr std::int64_t kWidth = 6;
constexpr std::int64_t kClasses = 13;

struct Problem {
  at::Tensor x;
  at::Tensor weight;
  at::Tensor targets;
  objective::LinearCrossEntropySetup setup{.grad_scale = 0.25, .chunk_rows = 4};
};

Problem problem(double size) {
  const at::Generator random = at::detail::createCPUGenerator(3);
  Problem p;
  p.x = at::randn({kRows, kWidth}, random, at::kDouble).mul(size);
  p.weight = at::randn({kClasses, kWidth}, random, at::kDouble);
  p.targets = at::randint(kClasses, {kRows}, random, at::kLong);
  p.targets[2] = objective::kIgnoredTarget;
  return p;
}

/// Expects the same loss and, gathered, the same gradients as with all classes on one rank.
void expect_same_as_whole(const Problem& p, int ranks) {
  const auto whole =
      objective::linear_cross_entropy(p.x, p.weight, p.targets, p.setup, ops::Path::plain);
  std::vector<at::Tensor> grads_x(static_cast<std::size_t>(ranks));
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    const std::int64_t first = kClasses * world.rank() / ranks;
    const std::int64_t end = kClasses * (world.rank() + 1) / ranks;
    const auto part = objective::vocab_parallel_cross_entropy(
        p.x, p.weight.narrow(0, first, end - first), p.targets, {world, first, kClasses}, p.setup);
    EXPECT_TRUE(at::allclose(part.loss_sum, whole.loss_sum, 1e-13, 0));
    EXPECT_TRUE(at::allclose(part.grad_weight, whole.grad_weight.narrow(0, first, end - first),
                             1e-12, 1e-14));
    grads_x[static_cast<std::size_t>(world.rank())] = part.grad_x;
  });
  at::Tensor grad_x = at::zeros_like(p.x);
  for (const at::Tensor& part : grads_x) grad_x.add_(part);
  EXPECT_TRUE(at::allclose(grad_x, whole.grad_x, 1e-12, 1e-14));
}

TEST(VocabParallel, EqualsTheWholeForAnyShardingOfTheClasses) {
  for (const int ranks : {1, 2, 3, 5}) {
    expect_same_as_whole(problem(1), ranks);
    Problem weighted = problem(1);
    weighted.setup.row_weights = at::linspace(0.5, 2, kRows, at::kDouble);
    expect_same_as_whole(weighted, ranks);
    weighted.setup.softcap = 0.8;
    expect_same_as_whole(weighted, ranks);
  }
}

TEST(VocabParallel, LargeScoresDoNotOverflow) {
  expect_same_as_whole(problem(1e4), 3);
}

/// Makes every other target the class with the largest logit.
TEST(VocabParallel, TokenScoresEqualTheWholeForAnyShardingOfTheClasses) {
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    Problem p = problem(1);
    const at::Tensor x = p.x.to(dtype, false, /*copy=*/true);
    at::Tensor weight = p.weight.to(dtype, false, /*copy=*/true);
    weight[0].mul_(2).round_().div_(2);     // products of halves are exact in any order
    weight[kClasses - 1].copy_(weight[0]);  // the first of several equal ones counts
    x[1].copy_(weight[0]).mul_(20);  // rows in which these two classes have the largest logits
    x[3].copy_(x[1]);
    const at::Tensor likeliest = at::mm(x, weight.t()).argmax(1);
    for (std::int64_t row = 0; row < kRows; row += 2)
      if (row != 2) p.targets[row] = likeliest[row];
    p.targets[1] = kClasses - 1;
    p.targets[3] = 0;
    const objective::TokenScoresSetup setup{.chunk_rows = 4, .want_correct = true};
    const auto whole = objective::token_scores(x, weight, p.targets, setup, ops::Path::plain);
    EXPECT_GE(whole.correct.sum().item<std::int64_t>(), 5);
    EXPECT_FALSE(whole.correct[1].item<bool>());
    EXPECT_TRUE(whole.correct[3].item<bool>());
    for (const int ranks : {1, 2, 3, 5}) {
      comm::run_ranks(ranks, [&](comm::Communicator& world) {
        const std::int64_t first = kClasses * world.rank() / ranks;
        const std::int64_t end = kClasses * (world.rank() + 1) / ranks;
        const auto scores = objective::vocab_parallel_token_scores(
            x, weight.narrow(0, first, end - first), p.targets, {world, first, kClasses}, setup);
        const double bound = dtype == at::kDouble ? 1e-13 : 1e-5;
        EXPECT_TRUE(at::allclose(scores.log_probs, whole.log_probs, 0, bound)) << ranks;
        EXPECT_TRUE(scores.correct.equal(whole.correct)) << ranks;
      });
    }
  }
}

TEST(VocabParallel, KeepsTheInputGradientWithAFrozenHead) {
  const Problem p = problem(1);
  comm::run_ranks(2, [&](comm::Communicator& world) {
    const std::int64_t first = world.rank() == 0 ? 0 : 6;
    const at::Tensor weight = p.weight.narrow(0, first, world.rank() == 0 ? 6 : 7);
    objective::LinearCrossEntropySetup setup = p.setup;
    const objective::VocabShard part{world, first, kClasses};
    const auto both = objective::vocab_parallel_cross_entropy(p.x, weight, p.targets, part, setup);
    setup.want_grad_weight = false;
    const auto frozen =
        objective::vocab_parallel_cross_entropy(p.x, weight, p.targets, part, setup);
    EXPECT_TRUE(frozen.grad_x.equal(both.grad_x));
    EXPECT_FALSE(frozen.grad_weight.defined());
  });
}

TEST(VocabParallel, ATargetOutsideTheVocabularyIsDataError) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    Problem p = problem(1);
    p.targets[5] = kClasses;
    try {
      (void)objective::vocab_parallel_cross_entropy(p.x, p.weight, p.targets, {world, 0, kClasses},
                                                    p.setup);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      EXPECT_NE(std::string(error.what()).find("target 13"), std::string::npos) << error.what();
    }
  });
}

}  // namespace
}  // namespace trireme::ops
