#include "objective/linear_cross_entropy.hpp"

#include "core/error.hpp"
#include "unit/ops/support.hpp"

namespace trireme::ops::testing {
namespace {

/// Returns the sum over rows of weight * cross entropy. Without weights, all are 1.
at::Tensor reference_loss(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& targets,
                          const at::Tensor& row_weights, double softcap) {
  auto logits = at::matmul(x, weight.t());
  if (softcap > 0) logits = at::tanh(logits / softcap) * softcap;
  const auto losses = at::nll_loss_nd(at::log_softmax(logits, -1), targets, {}, at::Reduction::None,
                                      objective::kIgnoredTarget);
  return (row_weights.defined() ? losses * row_weights : losses).sum();
}

at::Tensor some_targets(std::int64_t rows, std::int64_t vocab) {
  auto targets = at::randint(0, vocab, {rows}, at::kLong);
  for (std::int64_t i = 0; i < rows; i += 3) targets[i] = objective::kIgnoredTarget;
  return targets;
}

// bf16 logits of up to 24 are rounded before the softmax: 2^-9 of that changes exp() by 4.7 %.
const std::vector<Case> kLossCases{
    {Path::plain, at::kDouble, 1e-12},    {Path::fast, at::kDouble, 1e-12},
    {Path::plain, at::kFloat, 1e-5},      {Path::fast, at::kFloat, 1e-5},
    {Path::plain, at::kBFloat16, 4.7e-2}, {Path::fast, at::kBFloat16, 4.7e-2}};

struct Size {
  std::int64_t N, D, V;
};

const std::vector<Size> kSizes{{1, 4, 1}, {7, 8, 33}, {50, 32, 300}, {65, 64, 1111}};

/// Compares loss and gradients with autograd in fp64, with a weight per row or without weights.
void expect_the_composite(const Case& c, const Size& s, const at::Tensor& row_weights,
                          double softcap = 0) {
  const auto targets = s.N == 1 ? at::zeros({1}, at::kLong) : some_targets(s.N, s.V);
  const auto x = random({s.N, s.D}).to(c.dtype);
  const auto weight = random({s.V, s.D}).to(c.dtype);
  const auto type = c.dtype == at::kDouble ? at::kDouble : at::kFloat;
  const objective::LinearCrossEntropySetup setup{
      .grad_scale = 0.25,
      .chunk_rows = 16,
      .row_weights = row_weights.defined() ? row_weights.to(type) : at::Tensor(),
      .softcap = softcap};

  const auto out = objective::linear_cross_entropy(x, weight, targets, setup, c.path);

  const auto exact_x = x.to(at::kDouble, false, true).requires_grad_();
  const auto exact_weight = weight.to(at::kDouble, false, true).requires_grad_();
  const auto loss = reference_loss(exact_x, exact_weight, targets, row_weights, softcap);
  const auto grads = torch::autograd::grad({loss}, {exact_x, exact_weight});
  const std::string label = name(c);
  expect_close(out.loss_sum, loss.detach(), c.tolerance, label + " loss");
  expect_close(out.grad_x * 4, grads[0], c.tolerance, label + " grad_x");
  expect_close(out.grad_weight * 4, grads[1], c.tolerance, label + " grad_weight");
}

TEST(LinearCrossEntropy, EqualsTheCompositeAndItsAutograd) {
  at::manual_seed(1);
  for (const auto& s : kSizes) {
    for (const auto& c : kLossCases) {
      if (s.V == 1 && c.dtype != at::kDouble) continue;  // with one class, loss and gradients are 0
      expect_the_composite(c, s, {});
      expect_the_composite(c, s, at::rand({s.N}, at::kDouble).mul(2).sub(0.5));
      if (c.dtype != at::kBFloat16) expect_the_composite(c, s, {}, /*softcap=*/3);
    }
  }
}

TEST(LinearCrossEntropy, TokenScoresAreTheLogSoftmaxOfTheTargets) {
  at::manual_seed(7);
  auto targets = some_targets(37, 90);
  for (const auto& c : kLossCases) {
    const auto x = random({37, 16}).to(c.dtype);
    const auto weight = random({90, 16}).to(c.dtype);
    const auto logits = at::matmul(x.to(at::kDouble), weight.to(at::kDouble).t());
    for (std::int64_t row = 1; row < 37; row += 4) targets[row] = logits[row].argmax();
    const auto expected = at::log_softmax(logits, -1)
                              .gather(1, targets.clamp_min(0).unsqueeze(1))
                              .squeeze(1)
                              .masked_fill(targets.eq(objective::kIgnoredTarget), 0);

    const auto scores = objective::token_scores(x, weight, targets,
                                                {.chunk_rows = 8, .want_correct = true}, c.path);

    EXPECT_EQ(scores.log_probs.scalar_type(), at::kDouble);
    expect_close(scores.log_probs, expected, c.tolerance, name(c) + " log-probabilities");
    if (c.dtype != at::kBFloat16) {  // rounding changes which class has the largest logit
      EXPECT_TRUE(scores.correct.equal(logits.argmax(1).eq(targets))) << name(c);
    }
    EXPECT_TRUE(objective::token_scores(x, weight, targets, {.chunk_rows = 8}, c.path)
                    .log_probs.equal(scores.log_probs));
  }
}

TEST(LinearCrossEntropy, TakesTheFirstOfEqualLogitsAsTheLargest) {
  const auto scores = objective::token_scores(at::ones({2, 4}), at::ones({5, 4}),
                                              at::arange(2, at::kLong), {.want_correct = true});
  EXPECT_TRUE(scores.correct[0].item<bool>());
  EXPECT_FALSE(scores.correct[1].item<bool>());
}

TEST(LinearCrossEntropy, IsEmptyWithoutRows) {
  const auto none = at::empty({0}, at::kLong);
  for (const auto& c : kLossCases) {
    const auto x = random({0, 8}).to(c.dtype);
    const auto weight = random({40, 8}).to(c.dtype);
    const auto out = objective::linear_cross_entropy(x, weight, none, {}, c.path);
    EXPECT_EQ(out.loss_sum.item<double>(), 0);
    EXPECT_EQ(out.grad_weight.count_nonzero().item<std::int64_t>(), 0);
    const auto scores = objective::token_scores(x, weight, none, {.want_correct = true}, c.path);
    EXPECT_EQ(scores.log_probs.numel() + scores.correct.numel(), 0);
  }
}

TEST(LinearCrossEntropy, KeepsTheInputGradientWithAFrozenHead) {
  at::manual_seed(8);
  const auto targets = some_targets(20, 40);
  for (const auto& c : kLossCases) {
    const auto x = random({20, 8}).to(c.dtype);
    const auto weight = random({40, 8}).to(c.dtype);
    const auto both =
        objective::linear_cross_entropy(x, weight, targets, {.chunk_rows = 8}, c.path);
    const auto frozen = objective::linear_cross_entropy(
        x, weight, targets, {.chunk_rows = 8, .want_grad_weight = false}, c.path);

    EXPECT_TRUE(frozen.grad_x.equal(both.grad_x));
    EXPECT_FALSE(frozen.grad_weight.defined());
  }
}

TEST(LinearCrossEntropy, IsZeroWithZeroGradientsForIgnoredTargets) {
  at::manual_seed(2);
  const auto targets = at::full({9}, objective::kIgnoredTarget, at::kLong);
  for (const auto& c : kLossCases) {
    const auto out =
        objective::linear_cross_entropy(random({9, 8}).to(c.dtype), random({40, 8}).to(c.dtype),
                                        targets, {.grad_scale = 1.0, .chunk_rows = 4}, c.path);

    EXPECT_EQ(out.loss_sum.item<double>(), 0.0);
    EXPECT_EQ(out.grad_x.count_nonzero().item<std::int64_t>(), 0);
    EXPECT_EQ(out.grad_weight.count_nonzero().item<std::int64_t>(), 0);
  }
}

TEST(LinearCrossEntropy, GradScaleScalesGradientsNotTheLoss) {
  at::manual_seed(3);
  const auto x = random({20, 8}).to(at::kFloat);
  const auto weight = random({40, 8}).to(at::kFloat);
  const auto targets = some_targets(20, 40);

  const auto one =
      objective::linear_cross_entropy(x, weight, targets, {.grad_scale = 1.0, .chunk_rows = 8});
  const auto eighth =
      objective::linear_cross_entropy(x, weight, targets, {.grad_scale = 0.125, .chunk_rows = 8});

  EXPECT_TRUE(one.loss_sum.equal(eighth.loss_sum));
  expect_close(eighth.grad_x * 8, one.grad_x, 1e-6, "grad_x");
  expect_close(eighth.grad_weight * 8, one.grad_weight, 1e-6, "grad_weight");
}

TEST(LinearCrossEntropy, LossDoesNotDependOnTheChunkSize) {
  at::manual_seed(4);
  const auto x = random({37, 16}).to(at::kFloat);
  const auto weight = random({90, 16}).to(at::kFloat);
  const auto targets = some_targets(37, 90);
  const auto whole =
      objective::linear_cross_entropy(x, weight, targets, {.grad_scale = 1.0, .chunk_rows = 1000});
  for (const std::int64_t rows : {1, 5, 36, 37}) {
    const auto chunked = objective::linear_cross_entropy(x, weight, targets,
                                                         {.grad_scale = 1.0, .chunk_rows = rows});

    expect_close(chunked.loss_sum, whole.loss_sum, 1e-6, "loss");
    expect_close(chunked.grad_weight, whole.grad_weight, 1e-5, "grad_weight");
  }
}

TEST(LinearCrossEntropy, WithoutGradientsGivesTheSameLoss) {
  at::manual_seed(5);
  const auto x = random({12, 8}).to(at::kBFloat16);
  const auto weight = random({64, 8}).to(at::kBFloat16);
  const auto targets = some_targets(12, 64);

  const auto with = objective::linear_cross_entropy(x, weight, targets, {.chunk_rows = 8});
  const auto without =
      objective::linear_cross_entropy(x, weight, targets, {.chunk_rows = 8, .want_grads = false});

  EXPECT_TRUE(with.loss_sum.equal(without.loss_sum));
  EXPECT_FALSE(without.grad_x.defined());
}

TEST(LinearCrossEntropy, IsTheSameFunctionTwice) {
  at::manual_seed(6);
  const auto x = random({70, 32}).to(at::kBFloat16);
  const auto weight = random({200, 32}).to(at::kBFloat16);
  const auto targets = some_targets(70, 200);

  const auto first =
      objective::linear_cross_entropy(x, weight, targets, {.grad_scale = 1.0, .chunk_rows = 32});
  const auto second =
      objective::linear_cross_entropy(x, weight, targets, {.grad_scale = 1.0, .chunk_rows = 32});

  EXPECT_TRUE(first.loss_sum.equal(second.loss_sum));
  EXPECT_TRUE(first.grad_x.equal(second.grad_x));
  EXPECT_TRUE(first.grad_weight.equal(second.grad_weight));
}

TEST(LinearCrossEntropy, NamesATargetOutsideTheVocabulary) {
  for (const std::int64_t target : {-1, 40}) {
    try {
      objective::linear_cross_entropy(at::ones({1, 8}), at::ones({40, 8}),
                                      at::full({1}, target, at::kLong));
      FAIL() << "accepted target " << target;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      EXPECT_NE(std::string(error.what()).find(std::to_string(target)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace trireme::ops::testing
