#pragma once
#include <cstdint>
#include <string>

namespace trireme {

class Problems;

}  // namespace trireme

namespace trireme::model {

/// Mixture of experts: the MLP of a layer consists of many narrower MLPs. A router picks some of
/// them for each token, and every token goes through the shared experts. No token is dropped.
/// Sources: Fedus et al., "Switch Transformers", 2022; Dai et al., "DeepSeekMoE", 2024.
struct MoeConfig {
  std::int64_t num_experts = 0;  // 0: every MLP is dense
  std::int64_t num_experts_per_tok = 2;
  std::int64_t moe_intermediate_size = 0;  // default: intermediate_size
  std::int64_t num_shared_experts = 0;
  std::int64_t first_dense_layers = 0;
  bool norm_topk_prob = true;
  std::string router_score = "softmax";
  std::string router_balance = "aux";
  std::string router_aux_loss = "sequence";
  double router_aux_loss_coef = 0.001;
  double router_bias_rate = 0.001;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("num_experts", self.num_experts, "number of routed experts; 0: one dense MLP");
    visit("num_experts_per_tok", self.num_experts_per_tok, "number of routed experts per token");
    visit("moe_intermediate_size", self.moe_intermediate_size,
          "width of one expert; 0: model.intermediate_size");
    visit("num_shared_experts", self.num_shared_experts,
          "number of experts that every token uses in addition to the routed ones");
    visit("first_dense_layers", self.first_dense_layers,
          "number of first layers with a dense MLP of model.intermediate_size");
    visit(
        "norm_topk_prob", self.norm_topk_prob,
        "divide the expert weights of a token by their sum (with one expert per token the weight is "
        "1, and the router learns only from the balance loss)");
    visit("router_score", self.router_score, "router score function: softmax or sigmoid");
    visit(
        "router_balance", self.router_balance,
        "load balancing: aux (auxiliary loss), bias (a bias on the scores that pick experts, moved "
        "after each update) or none");
    visit(
        "router_aux_loss", self.router_aux_loss,
        "tokens over which the auxiliary loss balances: sequence, or micro_batch (results then depend "
        "on train.micro_batch)");
    visit("router_aux_loss_coef", self.router_aux_loss_coef, "factor of the auxiliary loss");
    visit("router_bias_rate", self.router_bias_rate, "step by which an update moves a router bias");
  }

  [[nodiscard]] bool on() const { return num_experts > 0; }

  [[nodiscard]] bool in_layer(std::int64_t layer) const {
    return on() && layer >= first_dense_layers;
  }

  [[nodiscard]] std::int64_t layers_with_experts(std::int64_t num_layers) const {
    return on() ? num_layers - first_dense_layers : 0;
  }

  /// Returns the width of all shared experts, which are computed as one MLP.
  [[nodiscard]] std::int64_t shared_width() const {
    return num_shared_experts * moe_intermediate_size;
  }

  [[nodiscard]] bool has_aux_loss() const {
    return on() && router_balance == "aux" && router_aux_loss_coef > 0;
  }

  /// Returns true if routers have a bias, which is part of the model.
  [[nodiscard]] bool has_bias() const { return on() && router_balance == "bias"; }

  bool operator==(const MoeConfig&) const = default;
};

/// Reports all values out of range. `num_layers` is 0 if unknown.
void check(const MoeConfig& config, std::int64_t num_layers, Problems& problems);

}  // namespace trireme::model
