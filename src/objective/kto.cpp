#include "objective/kto.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/error.hpp"
#include "objective/weighted_sequences.hpp"
#include "parallel/collectives.hpp"

namespace trireme::objective {
namespace {

constexpr double kMostBeta = 1e6;

/// The values that validation reports come first.
constexpr std::array<std::string_view, 7> kAnswerMeans{
    "accuracy", "margin", "reward_chosen", "reward_rejected", "kl", "logp_chosen", "logp_rejected"};
constexpr std::size_t kAnswerEvaluated = 5;

void check_weight(std::string_view key, double value, Problems& problems) {
  if (!(value >= 0 && std::isfinite(value)))
    problems.add(std::string(key), value, "must be 0 or more, and finite");
}

}  // namespace

void check(const KtoConfig& config, Problems& problems) {
  if (!(config.beta > 0 && config.beta <= kMostBeta))
    problems.add("kto.beta", config.beta, formatted("must be more than 0, at most {}", kMostBeta));
  problems.one_of("kto.loss", config.loss,
                  std::vector<std::string>(kAnswerLosses.begin(), kAnswerLosses.end()));
  check_weight("kto.desirable_weight", config.desirable_weight, problems);
  check_weight("kto.undesirable_weight", config.undesirable_weight, problems);
}

KtoTerms kto_terms(const KtoConfig& config, const SequenceScores& scores,
                   const at::Tensor& reference, double kl) {
  const at::Tensor has_targets = scores.counts.view({-1, 2}).gt(0);
  KtoTerms terms;
  terms.is_desirable = has_targets.select(1, 0);
  // Only one sequence of an answer has targets, so the sum over both is its log-probability.
  const at::Tensor gains =
      ((scores.sums - reference).view({-1, 2}) * has_targets.to(at::kDouble)).sum(1);
  terms.rewards = gains * config.beta;
  const double anchor = config.loss == "kto" ? config.beta * kl : 0;
  const at::Tensor sign = terms.is_desirable.to(at::kDouble) * 2 - 1;
  const at::Tensor value = at::sigmoid(sign * (terms.rewards - anchor));
  const at::Tensor weight =
      at::where(terms.is_desirable, at::full_like(gains, config.desirable_weight),
                at::full_like(gains, config.undesirable_weight)) *
      has_targets.any(1);
  terms.losses = weight * (1 - value);
  const at::Tensor slopes = sign * weight * value * (1 - value) * config.beta;
  terms.row_weights = (slopes.unsqueeze(1) * has_targets.to(at::kDouble)).flatten();
  return terms;
}

KtoObjective::KtoObjective(parallel::ParamRegistry& registry, Setup setup,
                           std::unique_ptr<ReferenceScores> own,
                           std::unique_ptr<ReferenceScores> reference, Measures& measures)
    : registry_(registry),
      setup_(std::move(setup)),
      own_(std::move(own)),
      reference_(std::move(reference)),
      measures_(measures),
      means_(measures, kAnswerMeans),
      num_answers_(measures.declare({"num_answers", Combine::sum, /*whole=*/true})) {}

double KtoObjective::kl() const {
  const double num_answers = survey_.desirable + survey_.undesirable;
  return num_answers == 0 ? 0 : std::max(survey_.kl / num_answers, 0.0);
}

void KtoObjective::add_mismatched(std::span<const parallel::Microbatch> micro_batches) {
  std::vector<parallel::Microbatch> others;
  for (const parallel::Microbatch& batch : micro_batches) {
    if (!batch.mismatched)
      fail(ErrorKind::internal, "the KL estimate of KTO received a batch without other answers");
    others.push_back(*batch.mismatched);
  }
  own_->prepare(others);
  reference_->prepare(others);
  for (const parallel::Microbatch& batch : others) {
    if (!own_->knows(batch)) continue;
    const at::Tensor gains = own_->sums(batch).to(at::kCPU) - reference_->sums(batch).to(at::kCPU);
    adding_.kl += gains.sum().item<double>();
  }
}

void KtoObjective::survey(std::span<const parallel::Microbatch> micro_batches, bool last) {
  const at::NoGradGuard no_grad;
  if (setup_.config.loss == "kto") add_mismatched(micro_batches);
  for (const parallel::Microbatch& batch : micro_batches) {
    const at::Tensor has_targets =
        sequence_counts(batch, setup_.context).view({-1, 2}).gt(0).to(at::kDouble);
    adding_.desirable += has_targets.select(1, 0).sum().item<double>();
    adding_.undesirable += has_targets.select(1, 1).sum().item<double>();
  }
  if (!last) return;
  const bool counts = setup_.counts_answers && gives_loss();
  at::Tensor sums = at::tensor({gives_loss() ? adding_.kl : 0, counts ? adding_.desirable : 0,
                                counts ? adding_.undesirable : 0},
                               at::TensorOptions().dtype(at::kDouble).device(registry_.device()));
  for (comm::Communicator* group : setup_.update_groups)
    if (group->size() > 1)
      parallel::all_reduce(*group, sums, comm::ReduceOp::sum, "KL estimate")->wait();
  sums = sums.to(at::kCPU);
  survey_ = {sums[0].item<double>(), sums[1].item<double>(), sums[2].item<double>()};
  adding_ = {};
}

KtoTerms KtoObjective::terms_of(const parallel::Microbatch& batch,
                                const SequenceScores& scores) const {
  return kto_terms(setup_.config, scores, reference_->sums(batch).to(at::kCPU), kl());
}

/// Returns the sums of kAnswerMeans over a batch. The sums of all batches, divided by the number of
/// all answers, are the means.
std::vector<double> KtoObjective::sums_of(const KtoTerms& terms,
                                          const SequenceScores& scores) const {
  const at::Tensor has_targets = scores.counts.view({-1, 2}).gt(0).to(at::kDouble);
  const at::Tensor log_probs = scores.sums.view({-1, 2});
  const double num_answers = survey_.desirable + survey_.undesirable;
  const auto mean_of = [&](const at::Tensor& values, std::int64_t side) {
    const double number = side == 0 ? survey_.desirable : survey_.undesirable;
    if (number == 0) return 0.0;
    return (values * has_targets.select(1, side)).sum().item<double>() * num_answers / number;
  };
  const at::Tensor above = terms.rewards.gt(setup_.config.beta * kl());
  const at::Tensor below = terms.rewards.lt(setup_.config.beta * kl());
  const at::Tensor right = at::where(terms.is_desirable, above, below);
  const double chosen = mean_of(terms.rewards, 0);
  const double rejected = mean_of(terms.rewards, 1);
  return {(right * has_targets.any(1)).sum().item<double>(),
          chosen - rejected,
          chosen,
          rejected,
          kl() * has_targets.sum().item<double>(),
          mean_of(log_probs.select(1, 0), 0),
          mean_of(log_probs.select(1, 1), 1)};
}

at::Tensor KtoObjective::forward(const parallel::Microbatch& batch, const at::Tensor& hidden,
                                 double grad_scale, ObjectiveGrads& saved) {
  const at::NoGradGuard no_grad;
  const Head output = head();
  const WeightedSequences sequences(batch, hidden, output, setup_.context);
  const KtoTerms terms = terms_of(batch, sequences.scores());
  saved = sequences.gradients(terms.row_weights, grad_scale);
  const bool tells = gives_loss() && setup_.tensor.rank() == 0;
  means_.add(
      batch.step,
      tells ? sums_of(terms, sequences.scores()) : std::vector<double>(kAnswerMeans.size(), 0),
      tells ? static_cast<double>(batch.num_pairs) : 0);
  measures_.record(num_answers_, means_.weight());
  return terms.losses.sum().mul_(gives_loss() ? 1 : 0).to(hidden.device());
}

void KtoObjective::backward(ObjectiveGrads& saved) {
  add_head_gradient(registry_, setup_.head, saved);
}

std::span<const std::string_view> KtoObjective::evaluated() const {
  return std::span(kAnswerMeans).first(kAnswerEvaluated);
}

at::Tensor KtoObjective::evaluate(const parallel::Microbatch& batch,
                                  const at::Tensor& hidden) const {
  const SequenceScores scores = sequence_scores(batch, hidden, head(), setup_.context);
  const KtoTerms terms = terms_of(batch, scores);
  const std::vector<double> means = sums_of(terms, scores);
  return evaluation_sums(terms.losses, std::span(means).first(kAnswerEvaluated), hidden,
                         gives_loss());
}

}  // namespace trireme::objective
