#include "ops/rms_norm.hpp"

#include <ATen/Parallel.h>

#include "core/error.hpp"
#include "support/ops_autograd.hpp"
#include "unit/ops/support.hpp"

namespace trireme::ops::testing {
namespace {

TEST(RmsNorm, EqualsTheFormulaAndItsAutograd) {
  at::manual_seed(1);
  for (const auto& c : rounding_cases()) {
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{
             {1, 1}, {3, 7}, {2, 5, 64}, {1, 1, 512}, {4, 37, 130}, {0, 16}}) {
      expect_same_as_reference(
          c, {random(shape), random({shape.back()})},
          [&](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], kEps, c.path)}; },
          [](const Tensors& in) { return Tensors{reference_norm(in[0], in[1])}; }, "rms_norm");
    }
  }
}

TEST(RmsNorm, TakesStridedInput) {
  at::manual_seed(2);
  for (const auto& c : rounding_cases()) {
    expect_same_as_reference(
        c, {random({6, 4, 48}), random({48})},
        [&](const Tensors& in) {
          return Tensors{rms_norm(in[0].transpose(0, 1), in[1], kEps, c.path)};
        },
        [](const Tensors& in) { return Tensors{reference_norm(in[0].transpose(0, 1), in[1])}; },
        "strided");
  }
}

TEST(RmsNorm, AddsTheResidualInTheSamePass) {
  at::manual_seed(3);
  for (const auto& c : rounding_cases()) {
    if (c.dtype == at::kBFloat16) continue;  // the sum is rounded first: see the next test
    for (const std::int64_t width : {1, 16, 33, 512}) {
      expect_same_as_reference(
          c, {random({3, 5, width}), random({3, 5, width}), random({width})},
          [&](const Tensors& in) {
            auto [sum, y] = add_rms_norm(in[0], in[1], in[2], kEps, c.path);
            return Tensors{sum, y};
          },
          [](const Tensors& in) {
            const auto sum = in[0] + in[1];
            return Tensors{sum, reference_norm(sum, in[2])};
          },
          "add_rms_norm");
    }
  }
}

TEST(RmsNorm, FusedAddRoundsTheSumLikeTheAddDoes) {
  at::manual_seed(4);
  const auto x = random({9, 96}).to(at::kBFloat16);
  const auto residual = random({9, 96}).to(at::kBFloat16);
  const auto weight = random({96}).to(at::kBFloat16);

  const auto out = add_rms_norm_forward(x, residual, weight, kEps);
  const auto alone = rms_norm_forward(x + residual, weight, kEps);

  EXPECT_TRUE(out.sum.equal(x + residual));
  EXPECT_TRUE(out.y.equal(alone.y));
  EXPECT_TRUE(out.rstd.equal(alone.rstd));
}

TEST(RmsNorm, BackwardIsTheSameFunctionTwice) {
  at::manual_seed(5);
  const auto x = random({130, 512}).to(at::kBFloat16);
  const auto weight = random({512}).to(at::kBFloat16);
  const auto grad = random({130, 512}).to(at::kBFloat16);

  const auto out = rms_norm_forward(x, weight, kEps);
  const auto first = rms_norm_backward(grad, x, weight, out.rstd);
  const auto second = rms_norm_backward(grad, x, weight, out.rstd);

  EXPECT_TRUE(first.x.equal(second.x));
  EXPECT_TRUE(first.weight.equal(second.weight));
}

TEST(RmsNorm, BackwardComputesTheSameResultAgain) {
  at::manual_seed(9);
  for (const auto& c : rounding_cases()) {
    for (const std::int64_t width : {3, 64, 513}) {
      const auto x = random({5, width}).to(c.dtype);
      const auto weight = random({width}).to(c.dtype);
      const auto out = rms_norm_forward(x, weight, kEps, c.path);
      const auto grads = rms_norm_backward(x, x, weight, out.rstd, c.path, /*want_y=*/true);
      const auto without = rms_norm_backward(x, x, weight, out.rstd, c.path);
      EXPECT_TRUE(grads.y.equal(out.y)) << name(c);
      EXPECT_TRUE(grads.x.equal(without.x)) << name(c);
      EXPECT_TRUE(grads.weight.equal(without.weight)) << name(c);
      EXPECT_FALSE(without.y.defined());
    }
  }
}

TEST(RmsNorm, DoesNotDependOnTheNumberOfThreads) {
  at::manual_seed(6);
  const auto x = random({1000, 64}).to(at::kBFloat16);
  const auto weight = random({64}).to(at::kBFloat16);
  const auto rstd = rms_norm_forward(x, weight, kEps).rstd;
  const auto threads = at::get_num_threads();

  at::set_num_threads(1);
  const auto one = rms_norm_backward(x, x, weight, rstd);
  at::set_num_threads(3);
  const auto three = rms_norm_backward(x, x, weight, rstd);
  at::set_num_threads(threads);

  EXPECT_TRUE(one.x.equal(three.x));
  EXPECT_TRUE(one.weight.equal(three.weight));
}

TEST(RmsNorm, AddPassesTheGradientThatSkipsTheNorm) {
  const auto x = at::ones({2, 4}).requires_grad_();
  const auto residual = at::ones({2, 4}).requires_grad_();

  const auto out = add_rms_norm(x, residual, at::ones({4}), kEps);
  out.first.sum().backward();

  EXPECT_TRUE(x.grad().equal(at::ones({2, 4})));
  EXPECT_TRUE(residual.grad().equal(at::ones({2, 4})));
}

TEST(RmsNorm, RefusesAWeightOfAnotherWidth) {
  EXPECT_THROW(rms_norm(at::ones({2, 4}), at::ones({5}), kEps), Error);
}

}  // namespace
}  // namespace trireme::ops::testing
