#include "ops/gated_activation.hpp"

#include <cmath>
#include <map>

#include "core/error.hpp"
#include "ops/plain_activation.hpp"
#include "unit/ops/support.hpp"

namespace trireme::ops::testing {
namespace {

/// Computes the activation with ATen's own operations, not with the table.
const std::map<std::string_view, at::Tensor (*)(const at::Tensor&)>& references() {
  static const std::map<std::string_view, at::Tensor (*)(const at::Tensor&)> table{
      {"silu", [](const at::Tensor& x) { return x / (1 + (-x).exp()); }},
      {"gelu_tanh", [](const at::Tensor& x) { return at::gelu(x, "tanh"); }},
      {"relu2", [](const at::Tensor& x) { return at::relu(x).square(); }},
      {"gelu", [](const at::Tensor& x) { return x * (1 + at::erf(x / std::sqrt(2.0))) / 2; }}};
  return table;
}

class EveryActivation : public ::testing::TestWithParam<ActivationNames> {
 protected:
  Activation activation_ = find_activation(GetParam().name);
};

TEST_P(EveryActivation, EqualsTheFormulaAndItsAutograd) {
  at::manual_seed(1);
  const auto& reference = references().at(GetParam().name);
  for (const auto& c : rounding_cases()) {
    for (const auto& shape :
         std::vector<std::vector<std::int64_t>>{{1, 2}, {3, 14}, {2, 5, 64}, {7, 3328}, {0, 8}}) {
      expect_same_as_reference(
          c, {random(shape) * 3},
          [&](const Tensors& in) { return Tensors{gated_activation(in[0], activation_, c.path)}; },
          [&](const Tensors& in) {
            const auto halves = in[0].chunk(2, -1);
            return Tensors{reference(halves[0]) * halves[1]};
          },
          std::string(GetParam().name));
    }
  }
}

TEST_P(EveryActivation, EqualsTheFormulaWithoutGate) {
  at::manual_seed(4);
  const auto& reference = references().at(GetParam().name);
  for (const auto& c : rounding_cases()) {
    expect_same_as_reference(
        c, {random({3, 5, 34}) * 3},
        [&](const Tensors& in) { return Tensors{activated(in[0], activation_)}; },
        [&](const Tensors& in) { return Tensors{reference(in[0])}; }, std::string(GetParam().name));
  }
}

/// Computes central differences in fp64, without autograd and without the slope in the table.
TEST_P(EveryActivation, SlopeIsThatOfFiniteDifferences) {
  constexpr double kStep = 1e-5;
  at::manual_seed(2);
  const auto gate_up = random({4, 34}) * 2;
  const auto weights = random({4, 17});
  const auto grad = gated_backward(weights, gate_up, activation_, Path::plain);
  for (std::int64_t i = 0; i < gate_up.numel(); ++i) {
    const auto loss = [&](double shift) {
      const auto moved = gate_up.clone();
      moved.view(-1)[i] += shift;
      return (gated_forward(moved, activation_, Path::plain) * weights).sum().item<double>();
    };
    const double expected = (loss(kStep) - loss(-kStep)) / (2 * kStep);
    // 1e-8 is the third derivative times the step squared; 1e-5 is for the kink of relu2.
    EXPECT_NEAR(grad.view(-1)[i].item<double>(), expected, 1e-7) << "element " << i;
  }
}

TEST_P(EveryActivation, TakesStridedRows) {
  at::manual_seed(3);
  for (const auto& c : rounding_cases()) {
    expect_same_as_reference(
        c, {random({5, 3, 40})},
        [&](const Tensors& in) {
          return Tensors{gated_activation(in[0].transpose(0, 1), activation_, c.path)};
        },
        [&](const Tensors& in) {
          const auto halves = in[0].transpose(0, 1).chunk(2, -1);
          return Tensors{references().at(GetParam().name)(halves[0]) * halves[1]};
        },
        "strided");
  }
}

TEST_P(EveryActivation, BackwardComputesTheSameResultAgain) {
  at::manual_seed(5);
  for (const auto& c : rounding_cases()) {
    for (const std::int64_t width : {1, 17, 1664}) {
      const at::Tensor gate_up = (random({3, 2 * width}) * 3).to(c.dtype);
      const at::Tensor grad_y = random({3, width}).to(c.dtype);
      at::Tensor again;
      const at::Tensor grad = gated_backward(grad_y, gate_up, activation_, c.path, &again);
      EXPECT_TRUE(at::equal(again, gated_forward(gate_up, activation_, c.path)));
      EXPECT_TRUE(at::equal(grad, gated_backward(grad_y, gate_up, activation_, c.path)));
    }
  }
}

TEST_P(EveryActivation, GivesItsResultToWhoeverAwaitsIt) {
  at::manual_seed(6);
  const auto check = [&](const at::Tensor& x, const auto& call) {
    const auto late = c10::make_intrusive<LateResult>();
    const at::Tensor y = call(at::Tensor(x).requires_grad_(), late);
    at::Tensor given;
    late->wait_for([&](const at::Tensor& result) { given = result; });
    y.backward(at::ones_like(y));
    EXPECT_TRUE(at::equal(given, y));
    EXPECT_FALSE(late->is_awaited());
  };
  check(random({3, 34}), [&](const at::Tensor& x, const LateResultPtr& late) {
    return gated_activation(x, activation_, Path::fast, late);
  });
  check(random({3, 34}), [&](const at::Tensor& x, const LateResultPtr& late) {
    return activated(x, activation_, late);
  });
}

TEST_P(EveryActivation, StaysFiniteForHugeGatesAndKeepsWhatIsNoNumber) {
  for (const Path path : {Path::fast, Path::plain}) {
    const auto gates = at::tensor({-1e18F, -200.0F, -88.0F, 90.0F, 1e18F, NAN});
    const auto gate_up = at::cat({gates, at::ones({6})});

    const auto y = gated_forward(gate_up, activation_, path);
    const auto grad = gated_backward(at::ones({6}), gate_up, activation_, path);

    EXPECT_TRUE(y.narrow(0, 0, 5).isfinite().all().item<bool>()) << y;
    EXPECT_TRUE(grad.narrow(0, 0, 5).isfinite().all().item<bool>()) << grad;
    EXPECT_EQ(y[0].item<float>(), 0.0F);
    EXPECT_GE(y[4].item<float>(), 1e18F);
    EXPECT_TRUE(std::isnan(y[5].item<float>())) << "a diverged run must be seen";
    EXPECT_TRUE(std::isnan(grad[5].item<float>()));
  }
}

TEST_P(EveryActivation, RefusesAnOddWidth) {
  EXPECT_THROW(gated_activation(at::ones({2, 5}), activation_), Error);
}

INSTANTIATE_TEST_SUITE_P(OfTheTable, EveryActivation, ::testing::ValuesIn(AllActivations::names),
                         [](const auto& instance) { return std::string(instance.param.name); });

}  // namespace
}  // namespace trireme::ops::testing
