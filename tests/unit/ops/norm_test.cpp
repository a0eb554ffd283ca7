#include "ops/norm.hpp"

#include "core/error.hpp"
#include "unit/ops/support.hpp"

namespace trireme::ops::testing {
namespace {

struct LayerCase {
  at::ScalarType dtype;
  double tolerance;  // relative to the largest value: one rounding of the result
};

const LayerCase kCases[] = {{at::kDouble, 1e-12}, {at::kFloat, 1e-5}, {at::kBFloat16, 1e-2}};

constexpr NormSetup kLayer{.kind = NormKind::layer, .eps = 1e-5};

TEST(LayerNorm, EqualsTheFormulaAndItsGradients) {
  at::manual_seed(1);
  for (const LayerCase& c : kCases) {
    for (const auto& shape : std::vector<std::vector<std::int64_t>>{{1, 3}, {2, 5, 64}, {7, 33}}) {
      const std::int64_t width = shape.back();
      const at::Tensor x = (random(shape) + 2).to(c.dtype);
      const at::Tensor residual = random(shape).to(c.dtype);
      const at::Tensor both = random({2 * width}).to(c.dtype);
      const at::Tensor grad = random(shape).to(c.dtype);
      const at::Tensor grad_sum = random(shape).to(c.dtype);
      const at::Tensor sum = (x + residual);
      const at::Tensor leaf = sum.to(at::kDouble).requires_grad_();
      const at::Tensor weights = both.to(at::kDouble).requires_grad_();
      const at::Tensor centered = leaf - leaf.mean(-1, true);
      const at::Tensor wanted = centered / (centered.square().mean(-1, true) + kLayer.eps).sqrt() *
                                    weights.narrow(0, 0, width) +
                                weights.narrow(0, width, width);
      (wanted * grad.to(at::kDouble) + leaf * grad_sum.to(at::kDouble)).sum().backward();

      const AddRmsNormOutput out = add_norm_forward(x, residual, both, kLayer);
      const RmsNormGrads grads = add_norm_backward(grad, grad_sum, out.sum, both, out.rstd, kLayer);

      EXPECT_TRUE(at::equal(out.sum, sum));
      EXPECT_EQ(out.y.scalar_type(), c.dtype);
      expect_close(out.y, wanted.detach(), c.tolerance, "y");
      expect_close(grads.x, leaf.grad(), c.tolerance, "gradient of x");
      expect_close(grads.weight, weights.grad(), c.dtype == at::kDouble ? 1e-12 : 1e-5,
                   "gradient of the weight and bias, in fp32 also for bf16");
      EXPECT_TRUE(at::equal(norm_forward(sum, both, kLayer).y, out.y));
    }
  }
}

TEST(LayerNorm, NeedsWeightAndBias) {
  EXPECT_THROW(norm_forward(at::ones({2, 4}), at::ones({4}), kLayer), Error);
}

TEST(Norm, OfTheKindRmsIsRmsNorm) {
  at::manual_seed(2);
  const at::Tensor x = random({3, 8});
  const at::Tensor weight = random({8});
  EXPECT_TRUE(
      at::equal(norm_forward(x, weight, {.eps = 1e-6}).y, rms_norm_forward(x, weight, 1e-6).y));
}

}  // namespace
}  // namespace trireme::ops::testing
