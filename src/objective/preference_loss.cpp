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

struct MarginLoss {
  at::Tensor losses;  // [P]
  at::Tensor slopes;  // [P]: d loss / d margin
};

MarginLoss margin_loss(const PreferenceConfig& config, const at::Tensor& margins) {
  if (by_name<PairLoss>(kPairLosses, config.loss) == PairLoss::ipo) {
    const at::Tensor away = margins - 1 / (2 * config.beta);
    return {away.square(), 2 * away};
  }
  const at::Tensor z = margins * config.beta;
  const double wrong = config.label_smoothing;
  return {at::log_sigmoid(z) * (wrong - 1) - at::log_sigmoid(-z) * wrong,
          (at::sigmoid(-z) * (wrong - 1) + at::sigmoid(z) * wrong) * config.beta};
}

}  // namespace

void check(const PreferenceConfig& config, Problems& problems) {
  if (!(config.beta > 0 && config.beta <= kMaxBeta))
    problems.add("dpo.beta", config.beta, formatted("must be more than 0, at most {}", kMaxBeta));
  problems.one_of("dpo.logprob", config.logprob, texts(kLogProbForms));
  problems.one_of("dpo.score", config.score, texts(kPairScores));
  problems.one_of("dpo.loss", config.loss, texts(kPairLosses));
  if (!(config.label_smoothing >= 0 && config.label_smoothing < 0.5)) {
    problems.add("dpo.label_smoothing", config.label_smoothing, "must be in [0, 0.5)");
  } else if (config.loss == "ipo" && config.label_smoothing != 0) {
    problems.add("dpo.label_smoothing", config.label_smoothing, "must be 0 with dpo.loss = ipo");
  }
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
  const MarginLoss loss = margin_loss(config, gains.select(1, 0) - gains.select(1, 1));
  const at::Tensor per_target = scores.counts.view({-1, 2}).select(1, 0).clamp_min(1).reciprocal();
  const at::Tensor chosen_sums = scores.sums.view({-1, 2}).select(1, 0);
  terms.losses = loss.losses - chosen_sums * per_target * config.sft_weight;
  const at::Tensor of_sums = at::stack({-loss.slopes, loss.slopes}, 1).mul_(factor.view({-1, 2}));
  of_sums.select(1, 0).add_(per_target, config.sft_weight);
  terms.row_weights = of_sums.flatten();
  return terms;
}

}  // namespace trireme::objective
