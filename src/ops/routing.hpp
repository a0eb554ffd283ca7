#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

/// Tokens to experts and back: who goes where.
/// Sources: Shazeer et al., "Outrageously large neural networks", ICLR 2017; Gale et al.,
/// "MegaBlocks", MLSys 2023.
namespace trireme::ops {

enum class RouterScore { softmax, sigmoid };

/// A token's experts and their weights.
struct Routing {
  at::Tensor experts;  // [N, k] int64, the highest score first
  at::Tensor gates;    // [N, k], of the scores' type
};

/// logits [N, E] fp32 or fp64 -> scores [N, E].
at::Tensor router_scores(const at::Tensor& logits, RouterScore kind);
/// The k highest of each row, of scores + bias where there is a bias [E]; `normalize`: their scores are
/// divided by their sum.
Routing pick_experts(const at::Tensor& scores, const at::Tensor& bias, std::int64_t k,
                     bool normalize);
/// The gates of chosen experts again, from the scores.
at::Tensor gates_of(const at::Tensor& scores, const at::Tensor& experts, bool normalize);
/// Gradients of the gates [N, k], and `direct` [N, E] of the scores (undefined: none) -> of the logits.
at::Tensor router_backward(const at::Tensor& grad_gates, const at::Tensor& direct,
                           const at::Tensor& scores, const at::Tensor& experts, RouterScore kind,
                           bool normalize);

/// The N k assignments as rows, those of expert 0 first, of one expert in the order of their tokens.
struct ExpertRows {
  at::Tensor order;                  // [N k] int64: assignment token * k + choice of each row
  std::vector<std::int64_t> bounds;  // [E + 1], rows of each expert: 0 .. N k
};

/// The same with bounds [E + 1] on the device.
struct OrderedRows {
  at::Tensor order;
  at::Tensor bounds;
};

OrderedRows order_by_expert(const at::Tensor& experts, std::int64_t num_experts);
/// Waits for the device once, for the counts.
ExpertRows sort_by_expert(const at::Tensor& experts, std::int64_t num_experts);

/// x [N, D] -> its rows [N k, D] by expert.
at::Tensor to_rows(const at::Tensor& x, const at::Tensor& order, std::int64_t k);
/// rows [N k, D] -> [N, D], the sum of each token's k.
at::Tensor from_rows(const at::Tensor& rows, const at::Tensor& order, std::int64_t k);

}  // namespace trireme::ops
