#include "ops/cuda/rope.hpp"

#include "unit/ops/cuda/compare.hpp"

namespace trireme::ops::testing {
namespace {

using trireme::testing::HostLauncher;

struct HeadShape {
  std::int64_t batch;
  std::int64_t length;
  std::int64_t heads;
  std::int64_t kv_heads;
  std::int64_t width;
};

std::string text_of(const HeadShape& s) {
  return std::to_string(s.heads) + "/" + std::to_string(s.kv_heads) + " heads of " +
         std::to_string(s.width) + " ";
}

/// Returns queries and keys as the slots of one projection, like the model has them.
std::pair<at::Tensor, at::Tensor> slots_of(const at::Tensor& qkv, const HeadShape& s) {
  const at::Tensor slots = qkv.view({s.batch, s.length, s.heads + 2 * s.kv_heads, s.width});
  return {slots.narrow(2, 0, s.heads), slots.narrow(2, s.heads, s.kv_heads)};
}

void expect_rope_equals_plain(const HeadShape& s, bool has_norm, const CudaCase& one,
                              const std::string& label) {
  const at::Tensor qkv =
      random({s.batch, s.length, (s.heads + 2 * s.kv_heads) * s.width}).to(one.dtype);
  QkNormRope setup;
  if (has_norm) {
    setup.q_weight = random({s.width}).to(one.dtype);
    setup.k_weight = random({s.width}).to(one.dtype);
  }
  setup.eps = kEps;
  setup.tables = rope_tables(50, s.width, 1e4, at::kFloat);
  setup.positions = at::randint(50, {s.batch, s.length}, at::kLong);
  QkNormRope wide = setup;
  wide.q_weight = exact(setup.q_weight);
  wide.k_weight = exact(setup.k_weight);
  const auto [q, k] = slots_of(qkv, s);
  const at::Tensor grad_q = random({s.batch, s.heads, s.length, s.width}).to(one.dtype);
  const at::Tensor grad_k = random({s.batch, s.length, s.kv_heads, s.width})
                                .to(one.dtype)
                                .transpose(1, 2);  // with strides
  const at::Tensor grad = at::zeros_like(qkv);
  const auto [slot_q, slot_k] = slots_of(grad, s);

  const auto [out_q, out_k] = cuda::rope(q, k, setup);
  EXPECT_TRUE(out_q.transpose(1, 2).is_contiguous());  // attention joins the rows without a copy
  EXPECT_TRUE(out_k.transpose(1, 2).is_contiguous());
  const auto [q_weight, k_weight] =
      cuda::rope_backward(grad_q, grad_k, q, k, setup, slot_q, slot_k);

  const QueryKeyValue plain =
      qkv_norm_rope_forward(exact(qkv), s.heads, s.kv_heads, wide, Path::plain);
  const at::Tensor no_grad_v = at::zeros({s.batch, s.kv_heads, s.length, s.width}, at::kDouble);
  const QkvGrads grads = qkv_norm_rope_backward(exact(grad_q), exact(grad_k), no_grad_v, exact(qkv),
                                                wide, Path::plain);
  expect_close(out_q, plain.q, one.tolerance, label + "q");
  expect_close(out_k, plain.k, one.tolerance, label + "k");
  expect_close(grad, grads.qkv, one.tolerance, label + "gradient");
  EXPECT_EQ(q_weight.defined(), has_norm);
  if (!has_norm) return;
  expect_close(q_weight, grads.q_weight, 4e-6, label + "gradient of q's weight");
  expect_close(k_weight, grads.k_weight, 4e-6, label + "gradient of k's weight");
}

TEST(CudaRope, EqualsThePlainPathForOddSizes) {
  at::manual_seed(1);
  for_cuda_cases([](const CudaCase& one, const std::string& label, const HostLauncher&) {
    for (const HeadShape& shape : std::vector<HeadShape>{{1, 1, 1, 1, 2},
                                                         {2, 3, 3, 1, 6},
                                                         {1, 5, 4, 2, 64},
                                                         {2, 2, 3, 3, 80},
                                                         {1, 3, 2, 1, 128},
                                                         {1, 2, 1, 1, 272}}) {
      for (const bool has_norm : {false, true})
        expect_rope_equals_plain(shape, has_norm, one, label + text_of(shape));
    }
  });
}

TEST(CudaRope, AddsSeveralTokensPerBlock) {
  at::manual_seed(2);
  const HostLauncher host;
  expect_rope_equals_plain({1, 1027, 1, 1, 8}, true, {at::kFloat, 1e-5}, "2 tokens per block ");
}

}  // namespace
}  // namespace trireme::ops::testing
