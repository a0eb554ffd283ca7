#include "objective/policy_loss.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/by_name.hpp"

namespace trireme::objective {

void check(const PolicyConfig& config, Problems& problems) {
  const auto number = [&](const char* key, double value, bool valid, const char* allowed) {
    if (!valid || !std::isfinite(value)) problems.add(key, value, allowed);
  };
  problems.one_of("rl.objective", config.objective,
                  std::vector<std::string>(kPolicyLosses.begin(), kPolicyLosses.end()));
  problems.one_of("rl.kl", config.kl, std::vector<std::string>{"loss", "reward", "off"});
  number("rl.temperature", config.temperature, config.temperature > 0, "must be greater than 0");
  number("rl.beta", config.beta, config.beta >= 0, "must be 0 or more");
  number("rl.epsilon", config.epsilon, config.epsilon > 0 && config.epsilon < 1,
         "must be greater than 0 and less than 1");
  number("rl.epsilon_high", config.epsilon_high, config.epsilon_high >= 0, "must be 0 or more");
}

PolicyTerms policy_terms(const PolicyConfig& config, const at::Tensor& log_probs,
                         const at::Tensor& policy) {
  const auto kind = by_name<PolicyLoss>(kPolicyLosses, config.objective);
  const double beta = config.has_kl_loss() ? config.beta : 0;
  const double low = 1 - config.epsilon;
  const bool limits_ratio = kind == PolicyLoss::grpo || kind == PolicyLoss::ppo;
  const double high = config.upper() + (limits_ratio ? 1 : 0);
  const at::Tensor logp = log_probs.to(at::kCPU, at::kDouble).contiguous();
  PolicyTerms terms;
  for (at::Tensor* one : {&terms.losses, &terms.slopes, &terms.ratios, &terms.kl, &terms.gaps})
    *one = at::empty_like(logp);
  terms.clipped = at::empty(logp.sizes(), logp.options().dtype(at::kBool));
  const auto values = policy.accessor<double, 2>();
  const double* const current = logp.const_data_ptr<double>();
  for (std::int64_t i = 0; i < logp.numel(); ++i) {
    const auto one = values[i];
    const double advantage = one[3];
    const double ratio = std::exp(current[i] - one[1]);
    double loss = -advantage * current[i];  // reinforce, spo
    double slope = advantage;
    bool is_clipped = false;
    if (limits_ratio) {
      const double limited = std::clamp(ratio, low, high);
      is_clipped = limited * advantage < ratio * advantage;
      loss = -std::min(ratio * advantage, limited * advantage);
      slope = is_clipped ? 0 : ratio * advantage;
    } else if (kind == PolicyLoss::cispo) {
      is_clipped = ratio > high;
      loss *= std::min(ratio, high);
      slope *= std::min(ratio, high);
    }
    const double above = one[2] - current[i];
    const double kl = std::exp(above) - above - 1;
    terms.losses.mutable_data_ptr<double>()[i] =
        one[5] * (one[4] * loss + (beta > 0 ? beta * kl : 0));
    // d k3 / d(-logp) = exp(above) - 1
    terms.slopes.mutable_data_ptr<double>()[i] =
        one[5] * (one[4] * slope + (beta > 0 ? beta * (std::exp(above) - 1) : 0));
    terms.ratios.mutable_data_ptr<double>()[i] = ratio;
    terms.clipped.mutable_data_ptr<bool>()[i] = is_clipped;
    terms.kl.mutable_data_ptr<double>()[i] = kl;
    terms.gaps.mutable_data_ptr<double>()[i] = std::abs(current[i] - one[0]);
  }
  return terms;
}

}  // namespace trireme::objective
