#include "objective/policy.hpp"

#include "unit/objective/support.hpp"

namespace trireme::testing {
namespace {

/// The columns of Microbatch::policy.
enum Column { kRollout, kOld, kReference, kAdvantage, kCorrection, kWeight };

/// Returns a batch of two rows with values for each of its targets. The old log-probabilities are
/// near those of the model, so that some ratios are clipped and some are not.
parallel::Microbatch batch_of_answers(const at::Tensor& log_probs) {
  parallel::Microbatch batch = batch_of_rows(2);
  const at::Tensor index = objective::target_index(batch);
  const std::int64_t count = index.numel();
  const at::Tensor current = log_probs.flatten().index_select(0, index);
  const auto uniform = [&](std::uint64_t seed) {
    return at::rand({count}, random_of(seed), at::kDouble);
  };
  batch.policy = at::stack(
      {current + uniform(31) - 0.5, current + uniform(32) - 0.5, current + uniform(33) - 0.5,
       normal({count}, 34), uniform(35) + 0.5, uniform(36) / static_cast<double>(count)},
      1);
  auto targets = std::make_shared<parallel::TargetTokens>();
  targets->index = index;
  targets->tokens.assign(index.const_data_ptr<std::int64_t>(),
                         index.const_data_ptr<std::int64_t>() + count);
  targets->most = kClasses - 1;
  batch.target_tokens = targets;
  return batch;
}

/// The log-probabilities [B, T] of the targets by definition; classes from `classes` on are padding.
at::Tensor plain_log_probs(const parallel::Microbatch& batch, const at::Tensor& x,
                           const at::Tensor& w, std::int64_t classes, double softcap,
                           double temperature) {
  at::Tensor logits = at::matmul(x, w.narrow(0, 0, classes).t());
  if (softcap > 0) logits = at::tanh(logits / softcap) * softcap;
  return at::log_softmax(logits / temperature, -1)
      .gather(2, batch.targets.clamp_min(0).unsqueeze(2))
      .squeeze(2);
}

/// The loss by its definition.
at::Tensor plain_policy_loss(const objective::PolicyConfig& config,
                             const parallel::Microbatch& batch, const at::Tensor& log_probs) {
  const at::Tensor index = objective::target_index(batch);
  const at::Tensor current = log_probs.flatten().index_select(0, index);
  const auto column = [&](Column one) { return batch.policy.select(1, one); };
  const at::Tensor ratio = at::exp(current - column(kOld));
  const at::Tensor advantage = column(kAdvantage);
  at::Tensor loss = -advantage * current;
  if (config.objective == "grpo" || config.objective == "ppo") {
    loss = -at::minimum(ratio * advantage,
                        ratio.clamp(1 - config.epsilon, 1 + config.upper()) * advantage);
  } else if (config.objective == "cispo") {
    loss = loss * ratio.detach().clamp_max(config.upper());
  }
  const at::Tensor above = column(kReference) - current;
  const double beta = config.has_kl_loss() ? config.beta : 0;
  return (column(kWeight) * (column(kCorrection) * loss + beta * (at::exp(above) - above - 1)))
      .sum();
}

class OwnedPolicy final : public objective::Objective {
 public:
  OwnedPolicy(RankOfLayout& rank, const objective::PolicyConfig& config, std::int64_t classes)
      : objective_(
            rank.registry,
            {.path = ops::Path::plain, .classes = classes, .config = config, .tensor = rank.tensor},
            measures_) {}

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     objective::ObjectiveGrads& saved) override {
    return objective_.forward(batch, hidden, grad_scale, saved);
  }

  void backward(objective::ObjectiveGrads& saved) override { objective_.backward(saved); }

  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override {
    return objective_.evaluate(batch, hidden);
  }

 private:
  Measures measures_;
  objective::PolicyObjective objective_;
};

TEST(Policy, EveryObjectiveEqualsItsAutogradOnEveryLayout) {
  constexpr std::int64_t kPaddedClasses = kClasses + 3;
  constexpr double kTemperature = 0.7;
  const at::Tensor hidden = normal({2, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kPaddedClasses, kWidth}, 2);
  for (const double softcap : {0.0, 1.5}) {
    const parallel::Microbatch batch = batch_of_answers(
        plain_log_probs(batch_of_rows(2), hidden, weight, kClasses, softcap, kTemperature));
    for (const objective::PolicyConfig& config :
         {objective::PolicyConfig{.temperature = kTemperature},
          objective::PolicyConfig{
              .objective = "cispo", .temperature = kTemperature, .epsilon_high = 1.1},
          objective::PolicyConfig{
              .objective = "reinforce", .temperature = kTemperature, .kl = "reward"},
          objective::PolicyConfig{
              .objective = "ppo", .temperature = kTemperature, .epsilon = 0.1, .epsilon_high = 0.3},
          objective::PolicyConfig{.objective = "spo", .temperature = kTemperature}}) {
      const LossAndGrads expected =
          by_autograd(hidden, weight, [&](const at::Tensor& x, const at::Tensor& w) {
            return plain_policy_loss(config, batch,
                                     plain_log_probs(batch, x, w, kClasses, softcap, kTemperature));
          });
      for (const Ranks& ranks : kLayouts) {
        const LossAndGrads actual = by_ranks(
            ranks, batch, hidden, weight, 0.125,
            [&](RankOfLayout& rank) {
              return std::make_unique<OwnedPolicy>(rank, config, kClasses);
            },
            {at::kDouble, at::kDouble}, softcap);
        expect_same(
            actual, expected, 0.125, 1e-11,
            config.objective + ", soft-cap " + std::to_string(softcap) + ", " + name(ranks));
      }
    }
  }
}

}  // namespace
}  // namespace trireme::testing
