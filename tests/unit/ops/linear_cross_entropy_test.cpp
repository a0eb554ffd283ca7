#include "objective/linear_cross_entropy.hpp"

#include "core/error.hpp"
#include "unit/ops/support.hpp"

namespace trireme::ops::testing {
namespace {

at::Tensor reference_loss(const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& targets) {
  return at::nll_loss_nd(at::log_softmax(at::matmul(x, weight.t()), -1), targets, {},
                         at::Reduction::Sum, kIgnoredTarget);
}

at::Tensor some_targets(std::int64_t rows, std::int64_t vocab) {
  auto targets = at::randint(0, vocab, {rows}, at::kLong);
  for (std::int64_t i = 0; i < rows; i += 3) targets[i] = kIgnoredTarget;
  return targets;
}

// bf16 logits are rounded before the softmax: their error of 2^-9 of about 8 enters exp() as 1.6 %.
const std::vector<Case> kCases{
    {Path::plain, at::kDouble, 1e-12},  {Path::fast, at::kDouble, 1e-12},
    {Path::plain, at::kFloat, 1e-5},    {Path::fast, at::kFloat, 1e-5},
    {Path::plain, at::kBFloat16, 2e-2}, {Path::fast, at::kBFloat16, 2e-2}};

TEST(LinearCrossEntropy, EqualsTheCompositeAndItsAutograd) {
  at::manual_seed(1);

  struct Shape {
    std::int64_t N, D, V;
  };

  for (const auto& s : std::vector<Shape>{{1, 4, 1}, {7, 8, 33}, {50, 32, 300}, {65, 64, 1111}}) {
    const auto targets = s.N == 1 ? at::zeros({1}, at::kLong) : some_targets(s.N, s.V);
    for (const auto& c : kCases) {
      if (s.V == 1 && c.dtype != at::kDouble) continue;  // all zero
      expect_same_as_reference(
          c, {random({s.N, s.D}), random({s.V, s.D})},
          [&](const Tensors& in) {
            const LinearCrossEntropySetup setup{0.25, 16};
            return Tensors{linear_cross_entropy(in[0], in[1], targets, setup, c.path)};
          },
          [&](const Tensors& in) { return Tensors{reference_loss(in[0], in[1], targets)}; },
          "loss");
    }
  }
}

TEST(LinearCrossEntropy, OfIgnoredTargetsIsZeroWithZeroGradients) {
  at::manual_seed(2);
  const auto targets = at::full({9}, kIgnoredTarget, at::kLong);
  for (const auto& c : kCases) {
    const auto out = linear_cross_entropy_forward(
        random({9, 8}).to(c.dtype), random({40, 8}).to(c.dtype), targets, {1.0, 4}, c.path);

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

  const auto one = linear_cross_entropy_forward(x, weight, targets, {1.0, 8});
  const auto eighth = linear_cross_entropy_forward(x, weight, targets, {0.125, 8});

  EXPECT_TRUE(one.loss_sum.equal(eighth.loss_sum));
  expect_close(eighth.grad_x * 8, one.grad_x, 1e-6, "grad_x");
  expect_close(eighth.grad_weight * 8, one.grad_weight, 1e-6, "grad_weight");
}

TEST(LinearCrossEntropy, LossDoesNotDependOnTheChunkSize) {
  at::manual_seed(4);
  const auto x = random({37, 16}).to(at::kFloat);
  const auto weight = random({90, 16}).to(at::kFloat);
  const auto targets = some_targets(37, 90);
  const auto whole = linear_cross_entropy_forward(x, weight, targets, {1.0, 1000});
  for (const std::int64_t rows : {1, 5, 36, 37}) {
    const auto chunked = linear_cross_entropy_forward(x, weight, targets, {1.0, rows});

    expect_close(chunked.loss_sum, whole.loss_sum, 1e-6, "loss");
    expect_close(chunked.grad_weight, whole.grad_weight, 1e-5, "grad_weight");
  }
}

TEST(LinearCrossEntropy, WithoutGradientsGivesTheSameLoss) {
  at::manual_seed(5);
  const auto x = random({12, 8}).to(at::kBFloat16);
  const auto weight = random({64, 8}).to(at::kBFloat16);
  const auto targets = some_targets(12, 64);

  const auto with = linear_cross_entropy_forward(x, weight, targets, {1.0, 8, true});
  const auto without = linear_cross_entropy_forward(x, weight, targets, {1.0, 8, false});

  EXPECT_TRUE(with.loss_sum.equal(without.loss_sum));
  EXPECT_FALSE(without.grad_x.defined());
}

TEST(LinearCrossEntropy, IsTheSameFunctionTwice) {
  at::manual_seed(6);
  const auto x = random({70, 32}).to(at::kBFloat16);
  const auto weight = random({200, 32}).to(at::kBFloat16);
  const auto targets = some_targets(70, 200);

  const auto first = linear_cross_entropy_forward(x, weight, targets, {1.0, 32});
  const auto second = linear_cross_entropy_forward(x, weight, targets, {1.0, 32});

  EXPECT_TRUE(first.loss_sum.equal(second.loss_sum));
  EXPECT_TRUE(first.grad_x.equal(second.grad_x));
  EXPECT_TRUE(first.grad_weight.equal(second.grad_weight));
}

TEST(LinearCrossEntropy, NamesATargetOutsideTheVocabulary) {
  for (const std::int64_t target : {-1, 40}) {
    try {
      linear_cross_entropy(at::ones({1, 8}), at::ones({40, 8}), at::full({1}, target, at::kLong));
      FAIL() << "accepted target " << target;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      EXPECT_NE(std::string(error.what()).find(std::to_string(target)), std::string::npos);
    }
  }
}

}  // namespace
}  // namespace trireme::ops::testing
