#pragma once
#include <ATen/core/Tensor.h>

#include <span>

#include "ops/path.hpp"

/// Rotary position embedding in the rotate-half convention (element i pairs with i + D/2), with the
/// optional per-head RMSNorm of queries and keys (Qwen3) before it. Source: Su et al., "RoFormer",
/// 2021; MiniMind since V2.1 and Llama in transformers use this convention.
namespace trireme::ops {

/// cos and sin of position * theta^(-2i/D): each [max_positions, D/2], fp32 or fp64.
struct RopeTables {
  at::Tensor cos;
  at::Tensor sin;
};

/// Angles are computed in fp64, then rounded to `dtype` (kFloat or kDouble).
RopeTables rope_tables(std::int64_t max_positions, std::int64_t head_dim, double theta,
                       at::ScalarType dtype, at::Device device = at::kCPU);

/// For other frequencies than theta^(-2i/D), radians a position [D/2]; cos and sin are multiplied
/// with `scale`, as transformers' attention_factor.
RopeTables rope_tables(std::int64_t max_positions, std::span<const double> frequencies,
                       double scale, at::ScalarType dtype, at::Device device = at::kCPU);

/// What queries and keys share. Weights [D] or undefined (no norm), in q's dtype.
struct QkNormRope {
  at::Tensor q_weight;
  at::Tensor k_weight;
  double eps = 1e-6;
  RopeTables tables;
  at::Tensor positions;  // [B, T] int64, all inside the tables
};

/// Queries, keys and values of a fused projection.
struct QueryKeyValue {
  at::Tensor q;
  at::Tensor k;
  at::Tensor v;
};

struct QkvGrads {
  at::Tensor qkv;       // [B, T, (H + 2 Hk) D]
  at::Tensor q_weight;  // [D] fp32 or fp64, undefined without norm
  at::Tensor k_weight;
};

/// qkv [B, T, (H + 2 Hk) D] has queries, then keys, then values. Returns q [B, H, T, D] and
/// k [B, Hk, T, D], contiguous, and v as a view [B, Hk, T, D] of qkv. Throws Error(internal) if shapes
/// do not fit, Error(data) if a position is outside the tables (CPU tensors).

QueryKeyValue qkv_norm_rope_forward(const at::Tensor& qkv, std::int64_t num_heads,
                                    std::int64_t num_kv_heads, const QkNormRope& setup,
                                    Path path = Path::fast);
QkvGrads qkv_norm_rope_backward(const at::Tensor& grad_q, const at::Tensor& grad_k,
                                const at::Tensor& grad_v, const at::Tensor& qkv,
                                const QkNormRope& setup, Path path = Path::fast);

}  // namespace trireme::ops
