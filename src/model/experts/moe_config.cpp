#include "model/experts/moe_config.hpp"

#include <cmath>
#include <string>
#include <vector>

#include "core/error.hpp"
#include "core/problems.hpp"

namespace trireme::model {

void check(const MoeConfig& config, std::int64_t num_layers, Problems& problems) {
  constexpr std::int64_t kMaxExperts = 65536;
  const auto within = [&](const char* key, std::int64_t value, std::int64_t low, std::int64_t high,
                          const char* what = "") {
    if (value < low || value > high)
      problems.add(formatted("model.{}", key), value,
                   formatted("must be in [{}, {}{}]", low, high, what));
  };
  using Names = std::vector<std::string>;
  problems.one_of("model.router_score", config.router_score, Names{"softmax", "sigmoid"});
  problems.one_of("model.router_balance", config.router_balance, Names{"aux", "bias", "none"});
  problems.one_of("model.router_aux_loss", config.router_aux_loss,
                  Names{"sequence", "micro_batch"});
  if (!std::isfinite(config.router_aux_loss_coef) || config.router_aux_loss_coef < 0)
    problems.add("model.router_aux_loss_coef", config.router_aux_loss_coef, "must be 0 or above");
  if (!std::isfinite(config.router_bias_rate) || config.router_bias_rate <= 0)
    problems.add("model.router_bias_rate", config.router_bias_rate, "must be above 0");
  within("num_experts", config.num_experts, 0, kMaxExperts);
  if (!config.on()) return;
  within("num_experts_per_tok", config.num_experts_per_tok, 1, config.num_experts,
         " = model.num_experts");
  within("moe_intermediate_size", config.moe_intermediate_size, 0, std::int64_t{1} << 31);
  within("num_shared_experts", config.num_shared_experts, 0, kMaxExperts);
  if (num_layers > 0)
    within("first_dense_layers", config.first_dense_layers, 0, num_layers, " = model.num_layers");
}

}  // namespace trireme::model
