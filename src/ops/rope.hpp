#pragma once
#include <ATen/core/Tensor.h>

#include <span>

#include "ops/path.hpp"

/// Rotary position embedding in the rotate-half convention (element i pairs with i + D/2), after
/// the optional per-head RMSNorm of queries and keys (Qwen3). MiniMind since V2.1 and Llama in
/// transformers use this convention. Source: Su et al., "RoFormer", 2021.
namespace trireme::ops {

/// cos and sin of position * theta^(-2i/D): each [max_positions, D/2], fp32 or fp64.
struct RopeTables {
  at::Tensor cos;
  at::Tensor sin;
};

/// Computes the tables with angles in fp64, rounded to `dtype` (kFloat or kDouble).
RopeTables rope_tables(std::int64_t max_positions, std::int64_t head_dim, double theta,
                       at::ScalarType dtype, at::Device device = at::kCPU);

/// Computes the tables for frequencies [D/2] in radians per position; cos and sin are multiplied by
/// `scale` (attention_factor in transformers).
RopeTables rope_tables(std::int64_t max_positions, std::span<const double> frequencies,
                       double scale, at::ScalarType dtype, at::Device device = at::kCPU);

/// Settings for queries and keys. Weights [D] in q's dtype; undefined: no norm.
struct QkNormRope {
  at::Tensor q_weight;
  at::Tensor k_weight;
  double eps = 1e-6;
  RopeTables tables;
  at::Tensor positions;  // [B, T] int64, within the tables
};

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

/// Splits qkv [B, T, (H + 2 Hk) D] (queries, keys, values), applies norm and rotation. Returns
/// q [B, H, T, D], k [B, Hk, T, D], and v as a view [B, Hk, T, D] of qkv. The memory of q and k is
/// [B, H, T, D] on a CPU and [B, T, H, D] with the kernels of a GPU. Throws Error(internal) if shapes
/// do not match, Error(data) for a CPU position outside the tables.
QueryKeyValue qkv_norm_rope_forward(const at::Tensor& qkv, std::int64_t num_heads,
                                    std::int64_t num_kv_heads, const QkNormRope& setup,
                                    Path path = Path::fast);
QkvGrads qkv_norm_rope_backward(const at::Tensor& grad_q, const at::Tensor& grad_k,
                                const at::Tensor& grad_v, const at::Tensor& qkv,
                                const QkNormRope& setup, Path path = Path::fast);

}  // namespace trireme::ops
