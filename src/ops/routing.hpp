#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

/// Routes tokens to experts and back. Sources: Shazeer et al., "Outrageously large neural
/// networks", ICLR 2017; Gale et al., "MegaBlocks", MLSys 2023.
namespace trireme::ops {

enum class RouterScore { softmax, sigmoid };

/// The experts of each token and their weights.
struct Routing {
  at::Tensor experts;  // [N, k] int64, highest score first
  at::Tensor gates;    // [N, k], dtype of the scores
};

/// Computes scores [N, E] from logits [N, E] in fp32 or fp64.
at::Tensor router_scores(const at::Tensor& logits, RouterScore kind);
/// Picks the k highest values of scores + bias (bias [E] may be undefined). If `normalize`, the
/// scores are divided by their sum.
Routing pick_experts(const at::Tensor& scores, const at::Tensor& bias, std::int64_t k,
                     bool normalize);
/// Computes the gates of the chosen experts from the scores.
at::Tensor gates_of(const at::Tensor& scores, const at::Tensor& experts, bool normalize);
/// Computes the gradient of the logits from those of the gates [N, k] and an optional direct
/// gradient of the scores, `direct` [N, E].
at::Tensor router_backward(const at::Tensor& grad_gates, const at::Tensor& direct,
                           const at::Tensor& scores, const at::Tensor& experts, RouterScore kind,
                           bool normalize);

/// The N k assignments as rows, sorted by expert and then by token.
struct ExpertRows {
  at::Tensor order;                  // [N k] int64: assignment token * k + choice of each row
  std::vector<std::int64_t> bounds;  // [E + 1]: row bounds of each expert, from 0 to N k
};

/// Like ExpertRows, with bounds [E + 1] on the device.
struct OrderedRows {
  at::Tensor order;
  at::Tensor bounds;
};

OrderedRows order_by_expert(const at::Tensor& experts, std::int64_t num_experts);
/// Synchronizes with the device once to read the counts.
ExpertRows sort_by_expert(const at::Tensor& experts, std::int64_t num_experts);

/// Gathers x [N, D] as rows [N k, D] in expert order.
at::Tensor to_rows(const at::Tensor& x, const at::Tensor& order, std::int64_t k);
/// Sums rows [N k, D] per token: [N, D].
at::Tensor from_rows(const at::Tensor& rows, const at::Tensor& order, std::int64_t k);

}  // namespace trireme::ops
