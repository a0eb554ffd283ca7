#pragma once
#include <functional>
#include <optional>
#include <string>

#include "model/layer.hpp"
#include "model/layer_context.hpp"
#include "ops/activations.hpp"
#include "ops/grouped.hpp"
#include "ops/routing.hpp"
#include "parallel/experts/row_exchange.hpp"
#include "parallel/microbatch.hpp"
#include "parallel/param_registry.hpp"

namespace trireme::model {

/// An MLP of many experts (MoeConfig): y = sum over a token's experts e of gate_e * MLP_e(x), +
/// MLP_shared(x). Tensor parallelism splits the width of each expert; all ranks of tp route all
/// tokens identically, in fp32. Expert parallelism distributes the experts: rows are sent to their
/// expert's rank and back (parallel/experts).
///
/// This is one operation with a hand-written backward. For T tokens it saves the normed input, the
/// scores, the chosen experts and the gate and up values of each row, for any routing.
class Experts {
 public:
  /// Declares the weights: mlp.gate [E, D]; its bias [E] if biases balance the load;
  /// mlp.experts.gate_up_proj [E, 2, F, D] and down_proj [E, D, F]; one MLP mlp.shared_experts as
  /// wide as all shared experts together, if there are any.
  Experts(parallel::ParamRegistry& registry, const LayerContext& context, std::int64_t layer,
          const std::string& prefix);

  /// x and result [B, T, D] are tokens of the residual stream; `again` recomputes the gathered x.
  [[nodiscard]] at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& x,
                                   const RecomputeFn& again) const;
  /// Inference on x [rows, D]. The result of a row depends on no other row.
  [[nodiscard]] at::Tensor forward_cached(const at::Tensor& x) const;
  /// Returns the matrices of all experts.
  [[nodiscard]] std::vector<parallel::WeightRef> linears() const;

  /// Activations of N tokens that forward saves for backward.
  struct Saved {
    at::Tensor scores;   // [N, E] fp32 (or fp64)
    at::Tensor experts;  // [N, k]
    std::shared_ptr<const parallel::Route> route;
    at::Tensor inputs;   // [R, D], rows received from other ranks; undefined: all rows are local
    at::Tensor gates;    // [R], dtype of the scores
    at::Tensor gate_up;  // [R, 2 F / etp]
    at::Tensor shared_gate_up;  // [N, 2 F_shared / tp]; undefined without shared experts
  };

  /// Computes this rank's partial result [N, D] from x [N, D].
  [[nodiscard]] at::Tensor apply(const parallel::Microbatch& batch, const at::Tensor& x,
                                 Saved& saved) const;
  /// Computes this rank's partial gradient of x from grad_y [N, D] and adds the weight gradients to
  /// the registry. `x` may be undefined if all weights are frozen.
  [[nodiscard]] at::Tensor apply_backward(const parallel::Microbatch& batch,
                                          const at::Tensor& grad_y, const at::Tensor& x,
                                          const Saved& saved) const;

  /// Returns true if backward needs the input to compute weight gradients.
  [[nodiscard]] bool needs_input_for_gradients() const { return registry_.trained({router_}); }

  [[nodiscard]] const parallel::TensorGroup& tensor() const { return context_.tensor; }

 private:
  /// Returns the route of the rows, from the experts [.., k] of the tokens that this rank sends.
  [[nodiscard]] std::shared_ptr<const parallel::Route> route(const parallel::Microbatch& batch,
                                                             const at::Tensor& experts) const;
  /// Computes this rank's partial gradient of x through the shared experts.
  [[nodiscard]] at::Tensor shared_backward(const at::Tensor& grad_y, const at::Tensor& x,
                                           const Saved& saved) const;
  /// Schedules the gradient of an expert weight. When it is due, the two functions produce the
  /// gradient of the product and its input, as rows sorted by expert.
  void give_grouped(parallel::ParamId weight, const ops::ExpertBounds& bounds,
                    std::function<at::Tensor()> of_gradient,
                    std::function<at::Tensor()> of_input) const;
  void give(parallel::WeightRef weight, const at::Tensor& x, const at::Tensor& grad_y) const;
  /// Sets the bias gradient to E * (tokens of each expert - mean), which are whole numbers.
  void give_bias(const parallel::Microbatch& batch, const Saved& saved) const;
  [[nodiscard]] at::Tensor gate_up_weight() const;  // [E / ep, 2 F / etp, D]
  [[nodiscard]] at::Tensor bias() const;            // [E], dtype of the scores; undefined: no bias
  [[nodiscard]] at::Tensor scores_of(const at::Tensor& x) const;
  /// Computes the gradient of the router outputs [N, E] from that of the gates [N, k].
  [[nodiscard]] at::Tensor router_grad(const parallel::Microbatch& batch,
                                       const at::Tensor& grad_gates, const Saved& saved) const;

  parallel::ParamRegistry& registry_;
  const LayerContext& context_;
  std::int64_t layer_;
  ops::Activation activation_;
  ops::RouterScore score_;
  parallel::ParamId router_ = 0;
  std::optional<parallel::ParamId> bias_;
  parallel::ParamId gate_up_ = 0;
  parallel::ParamId down_ = 0;
  std::optional<parallel::WeightRef> shared_gate_up_;
  parallel::WeightRef shared_down_;
};

}  // namespace trireme::model
