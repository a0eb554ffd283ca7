#include "ops/swiglu.hpp"

#include "core/error.hpp"
#include "unit/ops/support.hpp"

namespace trireme::ops::testing {
namespace {

at::Tensor reference_swiglu(const at::Tensor& gate, const at::Tensor& up) {
  return gate / (1 + (-gate).exp()) * up;
}

TEST(Swiglu, OfOneProjectionEqualsTheFormulaAndItsAutograd) {
  at::manual_seed(1);
  for (const auto& c : rounding_cases()) {
    for (const auto& shape :
         std::vector<std::vector<std::int64_t>>{{1, 2}, {3, 14}, {2, 5, 64}, {7, 3328}, {0, 8}}) {
      expect_same_as_reference(
          c, {random(shape) * 3}, [&](const Tensors& in) { return Tensors{swiglu(in[0], c.path)}; },
          [](const Tensors& in) {
            const auto halves = in[0].chunk(2, -1);
            return Tensors{reference_swiglu(halves[0], halves[1])};
          },
          "swiglu");
    }
  }
}

TEST(Swiglu, OfTwoProjectionsTakesStridedInput) {
  at::manual_seed(2);
  for (const auto& c : rounding_cases()) {
    expect_same_as_reference(
        c, {random({5, 3, 20}), random({3, 5, 20})},
        [&](const Tensors& in) { return Tensors{swiglu(in[0].transpose(0, 1), in[1], c.path)}; },
        [](const Tensors& in) { return Tensors{reference_swiglu(in[0].transpose(0, 1), in[1])}; },
        "pair");
  }
}

TEST(Swiglu, StaysFiniteForHugeGates) {
  const auto gate_up =
      at::tensor({-1e30F, -200.0F, -88.0F, 90.0F, 1e30F, 1.0F, 1.0F, 1.0F, 1.0F, 1.0F});

  const auto y = swiglu_forward(gate_up);
  const auto grad = swiglu_backward(at::ones({5}), gate_up);

  EXPECT_TRUE(y.isfinite().all().item<bool>()) << y;
  EXPECT_TRUE(grad.isfinite().all().item<bool>()) << grad;
  EXPECT_EQ(y[0].item<float>(), 0.0F);
  EXPECT_EQ(y[4].item<float>(), 1e30F);
}

TEST(Swiglu, RefusesAnOddWidth) {
  EXPECT_THROW(swiglu(at::ones({2, 5})), Error);
}

}  // namespace
}  // namespace trireme::ops::testing
