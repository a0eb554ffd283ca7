#pragma once
#include <array>

#include "ops/adamw.hpp"
#include "unit/ops/support.hpp"

/// Tensors of an update for the tests of both kernels of AdamW, and their results in fp64.
namespace trireme::ops::testing {

inline constexpr AdamWNumbers kNumbers{
    .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .update = 3};

/// Returns a piece with state, from element `offset` of its storage. fp32 pieces have no copy.
inline AdamWTensors some_piece(std::int64_t count, std::int64_t offset, double decay,
                               at::ScalarType type) {
  const auto some = [&] {
    return random({count + offset}).to(at::kFloat).narrow(0, offset, count);
  };
  const at::Tensor copy = type == at::kFloat
                              ? at::Tensor()
                              : at::zeros({count + offset}, type).narrow(0, offset, count);
  return {some(), some(), some(), some().square(), copy, decay};
}

/// Runs ATen's AdamW in fp64 on the gradients times `factor`. Returns weights and averages.
inline std::array<at::Tensor, 3> expected_update(const AdamWTensors& piece, double factor) {
  std::array<at::Tensor, 3> all{piece.weights.to(at::kDouble), piece.exp_avg.to(at::kDouble),
                                piece.exp_avg_sq.to(at::kDouble)};
  const at::Tensor step = at::full({}, static_cast<double>(kNumbers.update), at::kFloat);
  at::_fused_adamw_({all[0]}, {piece.grads.to(at::kDouble) * factor}, {all[1]}, {all[2]}, {},
                    {step}, kNumbers.lr, kNumbers.beta1, kNumbers.beta2, piece.decay, kNumbers.eps,
                    /*amsgrad=*/false, /*maximize=*/false);
  return all;
}

}  // namespace trireme::ops::testing
