#pragma once
#include <functional>
#include <optional>
#include <string>

#include "model/layer_context.hpp"
#include "model/recompute.hpp"
#include "ops/activations.hpp"
#include "ops/grouped.hpp"
#include "ops/routing.hpp"
#include "parallel/experts/row_exchange.hpp"
#include "parallel/microbatch.hpp"
#include "parallel/param_registry.hpp"

namespace trireme {

/// An MLP of many (MoeConfig): y = sum over a token's experts e of gate_e * MLP_e(x), + MLP_shared(x).
/// Tensor parallelism cuts each expert's width; every rank of tp routes all tokens alike, in fp32.
/// Expert parallelism deals the experts: rows go to their ranks and back (parallel/experts).
///
/// One operation with a hand-written backward: what it keeps of T tokens is their normed input,
/// scores, choices and each row's gate and up, whatever the routing.
class Experts {
 public:
  /// Declares its weights: mlp.gate [E, D] and, if it is balanced by one, its bias [E]; mlp.experts.gate_up_proj [E, 2, F, D] and down_proj
  /// [E, D, F]; where there are shared experts one MLP as wide as all, mlp.shared_experts.
  Experts(ParamRegistry& registry, const LayerContext& context, std::int64_t layer,
          const std::string& prefix);

  /// x, result: tokens of the residual stream [B, T, D]; `again` makes what entered.
  [[nodiscard]] at::Tensor forward(const Microbatch& batch, const at::Tensor& x,
                                   const Again& again) const;
  /// Inference: x [rows, D]; a row's result depends on no other row.
  [[nodiscard]] at::Tensor forward_cached(const at::Tensor& x) const;

  /// What a forward pass leaves for backward, of N tokens.
  struct Kept {
    at::Tensor scores;   // [N, E] fp32 (fp64 of fp64)
    at::Tensor experts;  // [N, k]
    std::shared_ptr<const Route> route;
    at::Tensor inputs;   // [R, D], the rows that came here; undefined: they are this rank's own
    at::Tensor gates;    // [R], of the scores' type
    at::Tensor gate_up;  // [R, 2 F / etp]
    at::Tensor shared_gate_up;  // [N, 2 F_shared / tp]; undefined: there are none
  };

  /// x [N, D] -> this rank's part of the result [N, D].
  [[nodiscard]] at::Tensor apply(const Microbatch& batch, const at::Tensor& x, Kept& kept) const;
  /// grad_y [N, D] -> this rank's part of the gradient of x; the weights' go to the registry. `x` may
  /// be undefined where there are none.
  [[nodiscard]] at::Tensor apply_backward(const Microbatch& batch, const at::Tensor& grad_y,
                                          const at::Tensor& x, const Kept& kept) const;

  /// Backward has gradients of weights to form.
  [[nodiscard]] bool reads_input_again() const { return registry_.trained({router_}); }

  [[nodiscard]] const TensorGroup& tensor() const { return context_.tensor; }

 private:
  /// Where rows go, from the experts of the tokens that this rank sends [.., k].
  [[nodiscard]] std::shared_ptr<const Route> route(const Microbatch& batch,
                                                   const at::Tensor& experts) const;
  /// This rank's part of the gradient of x through shared experts.
  [[nodiscard]] at::Tensor shared_backward(const at::Tensor& grad_y, const at::Tensor& x,
                                           const Kept& kept) const;
  /// Gradient of a weight of the experts here, when it is its turn, from rows by expert that are made
  /// then: of the product's gradient and of what was multiplied.
  void give_grouped(ParamId weight, const std::vector<std::int64_t>& bounds,
                    std::function<at::Tensor()> of_gradient,
                    std::function<at::Tensor()> of_input) const;
  void give(WeightRef weight, const at::Tensor& x, const at::Tensor& grad_y) const;
  /// As its gradient, by how many tokens each expert has more than the mean, E times: whole numbers.
  void give_bias(const Microbatch& batch, const Kept& kept) const;
  [[nodiscard]] at::Tensor gate_up_weight() const;  // [E / ep, 2 F / etp, D]
  [[nodiscard]] at::Tensor bias() const;            // [E] of the scores' type; undefined: none
  [[nodiscard]] at::Tensor scores_of(const at::Tensor& x) const;
  /// Gradient of the router's outputs [N, E], from that of the gates [N, k].
  [[nodiscard]] at::Tensor router_grad(const Microbatch& batch, const at::Tensor& grad_gates,
                                       const Kept& kept) const;

  ParamRegistry& registry_;
  const LayerContext& context_;
  std::int64_t layer_;
  ops::Activation activation_;
  ops::RouterScore score_;
  ParamId router_ = 0;
  std::optional<ParamId> bias_;
  ParamId gate_up_ = 0;
  ParamId down_ = 0;
  std::optional<WeightRef> shared_gate_up_;
  WeightRef shared_down_;
};

}  // namespace trireme
