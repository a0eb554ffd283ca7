#include "ops/cuda/rope.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <bit>

#include "ops/cuda/column_sums.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr std::int64_t kMaxWidth = 1024;
constexpr std::int64_t kHeadThreads = 256;

/// Tables and positions in the layout of the kernels. They live until the kernel is started.
struct HeadTables {
  at::Tensor cos;
  at::Tensor sin;
  at::Tensor positions;
};

HeadTables tables_of(const QkNormRope& setup) {
  return {setup.tables.cos.to(at::kFloat).contiguous(),
          setup.tables.sin.to(at::kFloat).contiguous(), setup.positions.contiguous()};
}

at::Tensor with_contiguous_heads(const at::Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) <= 1 ? x : x.contiguous();
}

HeadStrides strides_btHd(const at::Tensor& x) {
  return {x.stride(0), x.stride(1), x.stride(2)};
}

HeadStrides strides_bHtd(const at::Tensor& x) {
  return {x.stride(0), x.stride(2), x.stride(1)};
}

/// Returns true if all heads of x begin at a multiple of 16 bytes.
bool heads_are_aligned(const at::Tensor& x) {
  const auto lanes = static_cast<std::int64_t>(16 / x.element_size());
  const auto fits = [&](std::int64_t i) { return x.size(i) <= 1 || x.stride(i) % lanes == 0; };
  return reinterpret_cast<std::uintptr_t>(x.data_ptr()) % 16 == 0 && fits(0) && fits(1) && fits(2);
}

bool is_aligned(const at::Tensor& x) {
  return !x.defined() || reinterpret_cast<std::uintptr_t>(x.data_ptr()) % 16 == 0;
}

/// Returns the arguments that forward and backward share, without the parts.
Heads heads_call(const at::Tensor& q, const HeadTables& tables, const QkNormRope& setup,
                 bool is_aligned_to_vectors) {
  Heads call{};
  call.cos = data_of<float>(tables.cos);
  call.sin = data_of<float>(tables.sin);
  call.positions = data_of<std::int64_t>(tables.positions);
  call.length = q.size(1);
  call.tokens = q.size(0) * q.size(1);
  call.width = q.size(3);
  call.eps = static_cast<float>(setup.eps);
  const auto lanes = static_cast<std::int64_t>(16 / q.element_size());
  const std::int64_t half = call.width / 2;
  call.packed = is_aligned_to_vectors && half % lanes == 0 && is_aligned(tables.cos) &&
                is_aligned(tables.sin);
  const auto vectors = static_cast<std::uint64_t>(call.packed ? half / lanes : half);
  call.lanes = static_cast<int>(std::min<std::uint64_t>(std::bit_ceil(vectors), 32));
  return call;
}

/// Returns the part of the queries or keys `x`, without results.
HeadsPart input_part(const at::Tensor& x, const at::Tensor& weight) {
  HeadsPart part{};
  part.x = x.data_ptr();
  part.x_strides = strides_btHd(x);
  part.weight = data_or_null(weight);
  part.num_heads = x.size(2);
  return part;
}

}  // namespace

bool accepts_rope(const at::Tensor& q) {
  return q.size(3) <= kMaxWidth && accepts(q, {&kHeadsForward, &kHeadsBackward, &kColumnSums});
}

std::pair<at::Tensor, at::Tensor> rope(const at::Tensor& q_in, const at::Tensor& k_in,
                                       const QkNormRope& setup) {
  const HeadTables tables = tables_of(setup);
  const std::array inputs{with_contiguous_heads(q_in), with_contiguous_heads(k_in)};
  const std::array weights{contiguous_or_undefined(setup.q_weight),
                           contiguous_or_undefined(setup.k_weight)};
  std::array<at::Tensor, 2> out;
  bool aligned = true;
  for (std::size_t i = 0; i < 2; ++i) {
    const at::Tensor& x = inputs[i];
    // Flash attention reads the tokens of all rows as one dimension, without a copy.
    out[i] = at::empty(x.sizes(), x.options()).transpose(1, 2);
    aligned = aligned && heads_are_aligned(x) && is_aligned(weights[i]) && is_aligned(out[i]);
  }
  const at::Tensor& q = inputs[0];
  Heads call = heads_call(q, tables, setup, aligned);
  for (std::size_t i = 0; i < 2; ++i) {
    HeadsPart& part = call.parts[i] = input_part(inputs[i], weights[i]);
    part.out = out[i].data_ptr();
    part.out_strides = strides_bHtd(out[i]);
  }
  // Every group of threads has about two heads.
  const std::int64_t groups = kHeadThreads / call.lanes;
  call.tokens_per_block = std::max<std::int64_t>(2 * groups / q.size(2), 1);
  launch(kHeadsForward, q,
         {.blocks = (call.tokens + call.tokens_per_block - 1) / call.tokens_per_block,
          .threads = kHeadThreads,
          .blocks_y = 2},
         call);
  return {std::move(out[0]), std::move(out[1])};
}

std::pair<at::Tensor, at::Tensor> rope_backward(const at::Tensor& grad_q, const at::Tensor& grad_k,
                                                const at::Tensor& q_in, const at::Tensor& k_in,
                                                const QkNormRope& setup, const at::Tensor& slot_q,
                                                const at::Tensor& slot_k) {
  const HeadTables tables = tables_of(setup);
  const std::array inputs{with_contiguous_heads(q_in), with_contiguous_heads(k_in)};
  const std::array grads{with_contiguous_heads(grad_q), with_contiguous_heads(grad_k)};
  const std::array weights{contiguous_or_undefined(setup.q_weight),
                           contiguous_or_undefined(setup.k_weight)};
  const std::array slots{slot_q, slot_k};
  const at::Tensor& q = inputs[0];
  const Chunks chunks = row_chunks(q.size(0) * q.size(1));
  std::array<at::Tensor, 2> partial;
  bool aligned = true;
  for (std::size_t i = 0; i < 2; ++i) {
    aligned = aligned && heads_are_aligned(inputs[i]) && heads_are_aligned(grads[i]) &&
              heads_are_aligned(slots[i]) && is_aligned(weights[i]);
    if (weights[i].defined())
      partial[i] = at::empty({chunks.count, q.size(3)}, q.options().dtype(at::kFloat));
  }
  Heads call = heads_call(q, tables, setup, aligned);
  for (std::size_t i = 0; i < 2; ++i) {
    HeadsPart& part = call.parts[i] = input_part(inputs[i], weights[i]);
    part.grad = grads[i].data_ptr();
    part.grad_strides = strides_bHtd(grads[i]);
    part.out = slots[i].data_ptr();
    part.out_strides = strides_btHd(slots[i]);
    part.partial = data_of<float>(partial[i]);
  }
  call.tokens_per_block = chunks.rows;
  const bool has_norm = weights[0].defined() || weights[1].defined();
  const std::int64_t groups = kHeadThreads / call.lanes;
  const auto sums_bytes = groups * call.width * static_cast<std::int64_t>(sizeof(float));
  launch(kHeadsBackward, q,
         {.blocks = chunks.count,
          .threads = kHeadThreads,
          .shared_bytes = has_norm ? sums_bytes : 0,
          .blocks_y = 2},
         call);
  const auto sum = [&](std::size_t i) {
    return weights[i].defined() ? column_sums(partial[i]) : at::Tensor();
  };
  return {sum(0), sum(1)};
}

}  // namespace trireme::ops::cuda
