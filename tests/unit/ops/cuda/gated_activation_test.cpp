#include "ops/cuda/gated_activation.hpp"

#include "unit/ops/cuda/compare.hpp"

namespace trireme::ops::testing {
namespace {

using trireme::testing::HostLauncher;

void expect_gated_equals_plain(const at::Tensor& gate_up, Activation activation,
                               const CudaCase& one, const std::string& label) {
  std::vector<std::int64_t> sizes = gate_up.sizes().vec();
  sizes.back() /= 2;
  const at::Tensor grad_y = random(sizes).to(one.dtype);
  const at::Tensor y = gated_forward(exact(gate_up), activation, Path::plain);
  expect_close(cuda::gated(gate_up, activation), y, one.tolerance, label + "y");
  const at::Tensor grad = gated_backward(exact(grad_y), exact(gate_up), activation, Path::plain);
  expect_close(cuda::gated_backward(grad_y, gate_up, activation), grad, one.tolerance,
               label + "gradient");
  at::Tensor again;
  expect_close(cuda::gated_backward(grad_y, gate_up, activation, &again), grad, one.tolerance,
               label + "gradient beside y");
  expect_close(again, y, one.tolerance, label + "y of backward");
}

TEST(CudaGatedActivation, EqualsThePlainPathForEveryActivation) {
  at::manual_seed(1);
  for_cuda_cases([](const CudaCase& one, const std::string& label, const HostLauncher&) {
    for (std::size_t i = 0; i < Activations::names.size(); ++i) {
      for (const std::int64_t width : {1, 7, 64, 1032, 2101})
        expect_gated_equals_plain(
            (random({2, 3, 2 * width}) * 3).to(one.dtype), Activation{static_cast<std::int64_t>(i)},
            one,
            label + std::string(Activations::names[i].name) + " " + std::to_string(width) + " ");
    }
  });
}

TEST(CudaGatedActivation, TakesRowsWithGapsAndLargeValues) {
  at::manual_seed(2);
  const HostLauncher host;
  const at::Tensor gaps = (random({5, 48}) * 60).to(at::kBFloat16).narrow(1, 4, 32);
  for (std::size_t i = 0; i < Activations::names.size(); ++i)
    expect_gated_equals_plain(gaps, Activation{static_cast<std::int64_t>(i)}, {at::kBFloat16, 6e-3},
                              std::string(Activations::names[i].name) + " ");
}

}  // namespace
}  // namespace trireme::ops::testing
