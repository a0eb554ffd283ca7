#include <ATen/ATen.h>

#include "ops/attention/varlen.hpp"

namespace trireme::ops {
namespace {

at::Tensor on_device(const std::vector<std::int32_t>& offsets, at::Device device) {
  const auto host = at::tensor(offsets, at::kInt);
  return device.is_cuda() ? host.pin_memory().to(device, /*non_blocking=*/true) : host;
}

AttentionOutput flash_call(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                           const VarlenCall& call, double scale) {
  const auto results = at::_flash_attention_forward(
      q, k, v, on_device(call.query_offsets, q.device()), on_device(call.key_offsets, q.device()),
      call.longest_queries, call.longest_keys, /*dropout_p=*/0.0, call.causal,
      /*return_debug_mask=*/false, scale);
  return {std::get<0>(results), std::get<1>(results)};
}

AttentionGrads flash_gradients(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                               const at::Tensor& v, const AttentionOutput& forward,
                               const VarlenCall& call, double scale) {
  // The random state is read only where there is dropout.
  const auto state = at::empty({2}, q.options().dtype(at::kUInt64));
  const auto unused = at::empty({}, q.options().dtype(at::kUInt64));
  const auto [grad_q, grad_k, grad_v] = at::_flash_attention_backward(
      grad_out.contiguous(), q, k, v, forward.out, forward.lse,
      on_device(call.query_offsets, q.device()), on_device(call.key_offsets, q.device()),
      call.longest_queries, call.longest_keys, /*dropout_p=*/0.0, call.causal, state, unused,
      scale);
  return {grad_q, grad_k, grad_v};
}

const VarlenKernel& flash_kernel() {
  static const VarlenKernel kernel{flash_call, flash_gradients};
  return kernel;
}

}  // namespace

bool flash_applies(const at::Tensor& q, const AttentionSetup& setup) {
  constexpr int kAmpere = 8;
  return setup.window == 0 && q.size(3) % 8 == 0 && q.size(3) <= 256 &&
         cuda_generation(q.device()) >= kAmpere;
}

AttentionOutput flash_forward(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                              const AttentionSetup& setup) {
  return varlen_forward(flash_kernel(), q, k, v, setup);
}

AttentionGrads flash_backward(const at::Tensor& grad_out, const at::Tensor& q, const at::Tensor& k,
                              const at::Tensor& v, const AttentionOutput& forward,
                              const AttentionSetup& setup) {
  return varlen_backward(flash_kernel(), grad_out, q, k, v, forward, setup);
}

}  // namespace trireme::ops
