/// Compares every operation that has a cuda row with the plain path in fp64 on the same GPU.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <functional>

#include "device/device.hpp"
#include "ops/cuda/gated_activation.hpp"
#include "ops/cuda/rms_norm.hpp"
#include "ops/cuda/rope.hpp"

namespace trireme::ops {
namespace {

using Tensors = std::vector<at::Tensor>;

struct RowOperation {
  const char* name;
  bool (*accepts)(const at::Tensor& x);  // the cuda row accepts the first input
  /// Returns inputs in fp64 on the CPU.
  std::function<Tensors()> inputs;
  /// Returns results and gradients.
  std::function<Tensors(const Tensors& inputs, Path path)> run;
};

void PrintTo(const RowOperation& one, std::ostream* out) {
  *out << one.name;
}

Tensors run_norm(const Tensors& in, Path path) {
  const AddRmsNormOutput out = add_rms_norm_forward(in[0], {}, in[1], 1e-6, path);
  const RmsNormGrads grads = add_rms_norm_backward(in[2], in[3], in[0], in[1], out.rstd, path);
  return {out.y, out.rstd, grads.x, grads.weight};
}

Tensors run_rope(const Tensors& in, Path path) {
  const at::Tensor& q = in[0];  // [B, T, (H + 2 Hk) D] with H = 6, Hk = 2, D = 64
  QkNormRope setup;
  setup.q_weight = in[1];
  setup.k_weight = in[2];
  const bool is_exact = q.scalar_type() == at::kDouble;
  setup.tables = rope_tables(512, 64, 1e4, is_exact ? at::kDouble : at::kFloat, q.device());
  setup.positions = at::arange(q.size(1), at::kLong).expand({q.size(0), -1}).to(q.device());
  const QueryKeyValue out = qkv_norm_rope_forward(q, 6, 2, setup, path);
  const QkvGrads grads = qkv_norm_rope_backward(in[3], in[4], in[4], q, setup, path);
  return {out.q, out.k, grads.qkv, grads.q_weight, grads.k_weight};
}

Tensors run_gated(const Tensors& in, Path path, const char* name) {
  const Activation activation = find_activation(name);
  return {gated_forward(in[0], activation, path), gated_backward(in[1], in[0], activation, path)};
}

Tensors some(const std::vector<std::vector<std::int64_t>>& shapes) {
  Tensors all;
  for (const auto& shape : shapes) all.push_back(at::randn(shape, at::kDouble));
  return all;
}

std::vector<RowOperation> operations() {
  std::vector<RowOperation> all{
      {"norm", cuda::accepts_norm,
       [] {
         return some({{4099, 768}, {768}, {4099, 768}, {4099, 768}});
       },
       run_norm},
      {"norm_odd_width", cuda::accepts_norm,
       [] {
         return some({{37, 1021}, {1021}, {37, 1021}, {37, 1021}});
       },
       run_norm},
      {"rope", [](const at::Tensor& x) { return cuda::accepts_rope(x.unsqueeze(-1)); },
       [] {
         return some({{3, 511, 640}, {64}, {64}, {3, 6, 511, 64}, {3, 2, 511, 64}});
       },
       run_rope}};
  for (const ActivationNames& names : Activations::names) {
    all.push_back({names.name.data(), cuda::accepts_gated,
                   [] {
                     return some({{1025, 2 * 1536}, {1025, 1536}});
                   },
                   [name = names.name.data()](const Tensors& in, Path path) {
                     return run_gated(in, path, name);
                   }});
  }
  return all;
}

class GpuKernel : public ::testing::TestWithParam<RowOperation> {};

TEST_P(GpuKernel, EqualsThePlainPath) {
  if (device::num_visible_gpus() == 0) GTEST_SKIP() << "no device";
  at::manual_seed(1);
  const at::Device gpu(at::kCUDA, 0);
  const Tensors inputs = GetParam().inputs();
  for (const auto& [type, bound] :
       {std::pair{at::kFloat, 1e-5}, std::pair{at::kHalf, 1e-3}, std::pair{at::kBFloat16, 8e-3}}) {
    Tensors own;
    Tensors exact;
    for (const at::Tensor& input : inputs) {
      own.push_back(input.to(type).to(gpu));
      exact.push_back(own.back().to(at::kDouble));
    }
    ASSERT_TRUE(GetParam().accepts(own[0])) << at::toString(type) << ": the log has the reason";
    const Tensors results = GetParam().run(own, Path::fast);
    const Tensors again = GetParam().run(own, Path::fast);
    const Tensors expected = GetParam().run(exact, Path::plain);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      const double error = (results[i].to(at::kDouble) - expected[i]).abs().max().item<double>();
      const double scale = expected[i].abs().max().item<double>();
      EXPECT_LE(error, bound * scale) << at::toString(type) << ", result " << i;
      EXPECT_TRUE(results[i].equal(again[i])) << at::toString(type) << ", result " << i;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Rows, GpuKernel, ::testing::ValuesIn(operations()),
                         [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace trireme::ops
