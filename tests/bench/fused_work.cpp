#include "bench/fused_work.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "objective/linear_cross_entropy.hpp"
#include "ops/cuda/kernels/adamw.hpp"
#include "ops/cuda/kernels/embedding.hpp"
#include "ops/embedding.hpp"
#include "ops/gated_activation.hpp"
#include "ops/operations.hpp"
#include "ops/rms_norm.hpp"
#include "ops/rope.hpp"

namespace trireme::bench {
namespace {

constexpr double kHalf = 2;   // bytes of bf16
constexpr double kFloat = 4;  // bytes of fp32
constexpr double kIndex = 8;  // bytes of int64

/// Rows of the logits that a GPU holds at a time (src/objective/linear_cross_entropy.cpp).
constexpr double kChunkRows = 4096;
/// Launches of a sort of int64 (assumed): a histogram, its sums, 8 passes over the digits, and the
/// positions.
constexpr double kSortLaunches = 11;
constexpr double kSortPasses = 8;

double width(std::int64_t size) {
  return static_cast<double>(size);
}

at::Tensor some(const Shape& shape, std::int64_t rows, std::int64_t features) {
  return at::ones({rows, static_cast<std::int64_t>(shape.length), features}, at::kBFloat16);
}

/// Returns a call of a norm, forward and backward; `adds`: with the residual added before.
/// `again`: backward also computes the result of forward.
Call norm_call(const Shape& shape, std::int64_t rows, bool adds, bool again) {
  const at::Tensor x = some(shape, rows, shape.model.hidden_size);
  const at::Tensor weight = at::ones({shape.model.hidden_size}, at::kBFloat16);
  const at::Tensor residual = adds ? x : at::Tensor();
  return [=] {
    const auto out = ops::add_rms_norm_forward(x, residual, weight, 1e-5, ops::Path::plain);
    ops::add_rms_norm_backward(x, residual, out.sum, weight, out.rstd, ops::Path::plain, again);
  };
}

Call layer_norms(const Shape& shape, std::int64_t rows) {
  return
      [first = norm_call(shape, rows, false, true), second = norm_call(shape, rows, true, true)] {
        first();
        second();
      };
}

Call last_norm(const Shape& shape, std::int64_t rows) {
  return norm_call(shape, rows, false, false);
}

Call rope_call(const Shape& shape, std::int64_t rows) {
  const model::ModelConfig& c = shape.model;
  const auto length = static_cast<std::int64_t>(shape.length);
  const at::Tensor qkv = some(shape, rows, (c.num_heads + 2 * c.num_kv_heads) * c.head_dim);
  const ops::QkNormRope setup{{},
                              {},
                              1e-5,
                              ops::rope_tables(length, c.head_dim, c.rope_theta, at::kFloat),
                              at::arange(length).unsqueeze(0).expand({rows, length}).contiguous()};
  return [=] {
    const auto heads =
        ops::qkv_norm_rope_forward(qkv, c.num_heads, c.num_kv_heads, setup, ops::Path::plain);
    ops::qkv_norm_rope_backward(heads.q, heads.k, heads.v, qkv, setup, ops::Path::plain);
  };
}

Call gated_call(const Shape& shape, std::int64_t rows) {
  const at::Tensor gate_up = some(shape, rows, 2 * shape.model.intermediate_size);
  const ops::Activation silu = ops::find_activation("silu");
  return [=] {
    const at::Tensor y = ops::gated_forward(gate_up, silu, ops::Path::plain);
    at::Tensor again;
    ops::gated_backward(y, gate_up, silu, ops::Path::plain, &again);
  };
}

/// Returns a call of the head with its products and plain cross entropy, in chunks of 1,024 rows.
/// Every token but the last one of a row has a target.
Call head_call(const Shape& shape, std::int64_t rows) {
  const std::int64_t count = rows * (static_cast<std::int64_t>(shape.length) - 1);
  const std::int64_t hidden = shape.model.hidden_size;
  const at::Tensor x = at::ones({count, hidden}, at::kBFloat16);
  const at::Tensor weight = at::ones({shape.model.vocab_size, hidden}, at::kBFloat16);
  const at::Tensor targets = at::arange(count).remainder(shape.model.vocab_size);
  return [=] {
    constexpr std::array kPlain{ops::Operation::cross_entropy, ops::Operation::matmul};
    ops::compute_plainly(kPlain);
    objective::linear_cross_entropy(x, weight, targets, {.targets_checked = true});
    ops::compute_plainly({});
  };
}

Call embedding_call(const Shape& shape, std::int64_t rows) {
  const at::Tensor grads = some(shape, rows, shape.model.hidden_size).flatten(0, 1);
  const at::Tensor index = at::arange(grads.size(0)).remainder(shape.model.vocab_size);
  const at::Tensor table = at::zeros({shape.model.vocab_size, shape.model.hidden_size});
  return [=] { ops::add_embedding_gradient(table, index, grads, ops::Path::plain); };
}

/// Forward: x -> y, or x, residual -> sum, y. Backward: dy, x -> dx, or dy, dsum, sum -> dx, then a
/// sum of the weight gradients of the blocks. In layers, backward also writes y.
Work fused_norms(const Shape& shape) {
  const double x = shape.tokens() * width(shape.model.hidden_size) * kHalf;
  const double layers = width(shape.model.num_layers);
  Work work;
  work.launches = 3 * (2 * layers + 1);
  work.bytes = (layers + 1) * 5 * x + layers * 8 * x + layers * 2 * x;
  return work;
}

/// Reads and writes queries and keys in both directions; the gradient of the values is copied.
Work fused_rope(const Shape& shape) {
  const model::ModelConfig& c = shape.model;
  Work work;
  work.launches = 3;
  work.bytes = (4 * width((c.num_heads + c.num_kv_heads) * c.head_dim) +
                2 * width(c.num_kv_heads * c.head_dim)) *
               shape.tokens() * kHalf;
  return work * width(c.num_layers);
}

/// Forward: gate, up -> y. Backward: dy, gate, up -> dgate, dup, y.
Work fused_gated(const Shape& shape) {
  Work work;
  work.launches = 2;
  work.bytes = 9 * shape.tokens() * width(shape.model.intermediate_size) * kHalf;
  return work * width(shape.model.num_layers);
}

/// Three products per chunk, and one kernel that reads the logits twice and writes their gradient
/// once. The weight gradient of every chunk after the first is added to the sum.
Work fused_head(const Shape& shape) {
  const double rows = shape.rows * (shape.length - 1);
  const double chunks = std::ceil(rows / kChunkRows);
  const double inputs = rows * width(shape.model.hidden_size);
  const double logits = rows * width(shape.model.vocab_size);
  const double weights = width(shape.model.vocab_size * shape.model.hidden_size);
  Work work;
  work.launches = 4 * chunks + (chunks - 1) + 1;
  work.flops = 3 * 2 * rows * weights;
  work.product_bytes = kHalf * 3 * (inputs + logits) + chunks * weights * (2 * kHalf + kFloat);
  work.bytes = work.product_bytes + 3 * kHalf * logits + (chunks - 1) * 3 * kFloat * weights +
               rows * (kIndex + 2 * kFloat);
  return work;
}

/// A sort of the tokens, sums of segments, and sums of runs that reach other segments.
Work fused_embedding(const Shape& shape) {
  const double features = width(shape.model.hidden_size);
  const double classes = std::min(width(shape.model.vocab_size), shape.tokens());
  const double partials = shape.tokens() / ops::cuda::kSegment * 2 * features;
  Work work;
  work.launches = kSortLaunches + 2;
  work.bytes = kSortPasses * 4 * kIndex * shape.tokens() + 2 * kIndex * shape.tokens() +
               kHalf * features * shape.tokens() + 2 * kFloat * classes * features +
               2 * kFloat * partials;
  return work;
}

}  // namespace

Work fused_update(const Shape& shape) {
  const double layers = width(shape.model.num_layers);
  // Neighbours with equal weight decay are one piece. A layer has two norms and, after each of them,
  // the matrices of attention or MLP.
  const double pieces = 4 * layers + 3;
  const double parameters = shape.model.num_parameters_wide();
  Work work;
  work.launches = 2 * (layers + 2) + 1 + std::ceil(pieces / ops::cuda::kAdamWPieces);
  work.bytes = parameters * (kFloat + 7 * kFloat + kHalf);
  return work;
}

Work flash_attention(const Shape& shape) {
  const model::ModelConfig& c = shape.model;
  const double q = shape.tokens() * static_cast<double>(c.num_heads * c.head_dim);
  const double k = shape.tokens() * static_cast<double>(c.num_kv_heads * c.head_dim);
  const double lse = shape.tokens() * static_cast<double>(c.num_heads) * kFloat;
  const bool groups = c.num_heads != c.num_kv_heads;
  Work work;
  work.launches = groups ? 6 : 4;
  work.bytes = kHalf * (2 * q + 2 * k) + lse;                        // forward: q, k, v, out, lse
  work.bytes += kHalf * 2 * q + lse + kFloat * q;                    // dO * O, clears fp32 dQ
  work.bytes += kHalf * (2 * q + 2 * k) + 2 * lse + 2 * kFloat * q;  // q, k, v, dO, dQ
  work.bytes += kHalf * 2 * q + kFloat * q + kHalf * q;  // dK, dV per query head; dQ to bf16
  if (groups) work.bytes += kHalf * (2 * q + 2 * k);
  const double forward = 4 * q * shape.length / 2;
  work.flops = forward * 3.5;
  return work * static_cast<double>(c.num_layers);
}

std::vector<FusedOperation> fused_operations() {
  return {{"rms_norm", layer_norms, last_norm, fused_norms},
          {"rope", rope_call, {}, fused_rope},
          {"gated_activation", gated_call, {}, fused_gated},
          {"head and cross_entropy", {}, head_call, fused_head},
          {"embedding gradient", {}, embedding_call, fused_embedding}};
}

Work plain_work(const Shape& shape, const FusedOperation& operation) {
  const auto of_rows = [&](std::int64_t rows) {
    const auto record = [&](const auto& prepare) {
      Work sum;
      if (!prepare) return sum;
      const Call call = prepare(shape, rows);
      WorkByName work;
      {
        const AtenRecorder recorder(work);
        call();
      }
      for (const auto& [name, one] : work) sum += one;
      return sum;
    };
    return record(operation.plain_layer) * width(shape.model.num_layers) +
           record(operation.plain_rest);
  };
  const Work one = of_rows(1);
  return one + (of_rows(2) - one) * (shape.rows - 1);
}

}  // namespace trireme::bench
