#include "objective/preference_loss.hpp"

#include <ATen/ATen.h>

#include <cmath>

#include "core/by_name.hpp"
#include "core/error.hpp"

namespace trireme::objective {
namespace {

constexpr double kMaxBeta = 1e6;

template <std::size_t N>
std::vector<std::string> texts(const std::array<std::string_view, N>& names) {
  return {names.begin(), names.end()};
}

/// Returns d value / d sum of each sequence, which also converts sums to values.
at::Tensor factors(const PreferenceConfig& config, const at::Tensor& counts, std::int64_t seq_len) {
  switch (by_name<LogProbForm>(kLogProbForms, config.logprob)) {
    case LogProbForm::sum:
      return at::ones_like(counts);
    case LogProbForm::mean:
      return counts.clamp_min(1).reciprocal();  // without targets the sum is 0
    case LogProbForm::padded_mean:
      TRIREME_ASSERT(seq_len > 1);
      return at::full_like(counts, 1.0 / static_cast<double>(seq_len - 1));
  }
  fail(ErrorKind::internal, "dpo.logprob = {}", config.logprob);
}

struct PairLosses {
  at::Tensor losses;  // [P]
  at::Tensor slopes;  // [P, 2]: d loss / d value of the chosen and the rejected answer
};

/// Returns the slopes of a loss of the margin from its slope d loss / d margin.
at::Tensor slopes_of_margin(const at::Tensor& slopes) {
  return at::stack({slopes, -slopes}, 1);
}

PairLosses sigmoid_loss(const at::Tensor& z, double beta, double wrong) {
  return {at::log_sigmoid(z) * (wrong - 1) - at::log_sigmoid(-z) * wrong,
          slopes_of_margin((at::sigmoid(-z) * (wrong - 1) + at::sigmoid(z) * wrong) * beta)};
}

/// `values` [P, 2] are means of log p. `both` [P]: both sides have targets.
PairLosses odds_loss(const at::Tensor& values, const at::Tensor& both, double beta) {
  // A mean of 0 has infinite odds; its slope is multiplied by a gradient of 0.
  constexpr double kMostLogProb = -1e-12;
  const at::Tensor means = values.clamp_max(kMostLogProb);
  const at::Tensor others = -at::expm1(means);  // 1 - exp(mean)
  const at::Tensor log_odds = means - others.log();
  const at::Tensor z = log_odds.select(1, 0) - log_odds.select(1, 1);
  const at::Tensor weight = both.to(at::kDouble) * beta;
  const at::Tensor slopes = slopes_of_margin(-at::sigmoid(-z) * weight);
  return {-at::log_sigmoid(z) * weight, slopes / others};
}

/// `gains` [P, 2]: values minus those of the reference.
PairLosses pair_losses(const PreferenceConfig& config, const at::Tensor& gains,
                       const at::Tensor& both) {
  const at::Tensor margins = gains.select(1, 0) - gains.select(1, 1);
  switch (by_name<PairLoss>(kPairLosses, config.loss)) {
    case PairLoss::sigmoid:
      return sigmoid_loss(margins * config.beta, config.beta, config.label_smoothing);
    case PairLoss::ipo: {
      const at::Tensor away = margins - 1 / (2 * config.beta);
      return {away.square(), slopes_of_margin(2 * away)};
    }
    case PairLoss::orpo:
      return odds_loss(gains, both, config.beta);
    case PairLoss::simpo:
      return sigmoid_loss(margins * config.beta - config.gamma, config.beta,
                          config.label_smoothing);
  }
  fail(ErrorKind::internal, "dpo.loss = {}", config.loss);
}

}  // namespace

bool has_reference(std::string_view loss) {
  return loss != "orpo" && loss != "simpo";
}

void check(const PreferenceConfig& config, Problems& problems) {
  if (!(config.beta > 0 && config.beta <= kMaxBeta))
    problems.add("dpo.beta", config.beta, formatted("must be more than 0, at most {}", kMaxBeta));
  problems.one_of("dpo.logprob", config.logprob, texts(kLogProbForms));
  problems.one_of("dpo.score", config.score, texts(kPairScores));
  problems.one_of("dpo.loss", config.loss, texts(kPairLosses));
  if (!(config.label_smoothing >= 0 && config.label_smoothing < 0.5)) {
    problems.add("dpo.label_smoothing", config.label_smoothing, "must be in [0, 0.5)");
  } else if ((config.loss == "ipo" || config.loss == "orpo") && config.label_smoothing != 0) {
    problems.add("dpo.label_smoothing", config.label_smoothing,
                 cat("must be 0 with dpo.loss = ", config.loss));
  }
  if (!(config.gamma >= 0 && std::isfinite(config.gamma)))
    problems.add("dpo.gamma", config.gamma, "must be 0 or more, and finite");
  if (!has_reference(config.loss) && config.logprob != "mean")
    problems.add("dpo.logprob", config.logprob, cat("must be mean with dpo.loss = ", config.loss));
  if (!(config.sft_weight >= 0 && std::isfinite(config.sft_weight)))
    problems.add("dpo.sft_weight", config.sft_weight, "must be 0 or more, and finite");
}

PreferenceTerms preference_terms(const PreferenceConfig& config, const SequenceScores& scores,
                                 const at::Tensor& reference, std::int64_t seq_len) {
  const at::Tensor factor = factors(config, scores.counts, seq_len);
  PreferenceTerms terms;
  terms.values = (scores.sums * factor).view({-1, 2});
  const at::Tensor gains = ((scores.sums - reference) * factor).view({-1, 2});
  terms.rewards = gains * config.beta;
  const PairLosses loss = pair_losses(config, gains, scores.counts.view({-1, 2}).gt(0).all(1));
  const at::Tensor per_target = scores.counts.view({-1, 2}).select(1, 0).clamp_min(1).reciprocal();
  const at::Tensor chosen_sums = scores.sums.view({-1, 2}).select(1, 0);
  terms.losses = loss.losses - chosen_sums * per_target * config.sft_weight;
  const at::Tensor of_sums = -loss.slopes * factor.view({-1, 2});
  of_sums.select(1, 0).add_(per_target, config.sft_weight);
  terms.row_weights = of_sums.flatten();
  return terms;
}

}  // namespace trireme::objective
