#include "objective/preference.hpp"

#include <ATen/ATen.h>

#include <array>
#include <vector>

namespace trireme::objective {
namespace {

/// The values that validation reports come first.
constexpr std::array<std::string_view, 6> kMeans{"accuracy",        "margin",      "reward_chosen",
                                                 "reward_rejected", "logp_chosen", "logp_rejected"};
constexpr std::size_t kEvaluated = 2;

/// Returns the sums over the pairs of a batch, in the order of kMeans.
std::array<double, kMeans.size()> sums_of(const PreferenceTerms& terms) {
  const at::Tensor chosen = terms.rewards.select(1, 0);
  const at::Tensor rejected = terms.rewards.select(1, 1);
  const auto sum = [](const at::Tensor& values) { return values.sum().item<double>(); };
  return {sum(chosen.gt(rejected).to(at::kDouble)),
          sum(chosen - rejected),
          sum(chosen),
          sum(rejected),
          sum(terms.values.select(1, 0)),
          sum(terms.values.select(1, 1))};
}

}  // namespace

PreferenceObjective::PreferenceObjective(parallel::ParamRegistry& registry, const Setup& setup,
                                         std::unique_ptr<ReferenceScores> reference,
                                         Measures& measures)
    : registry_(registry),
      setup_(setup),
      reference_(std::move(reference)),
      measures_(measures),
      means_(measures, kMeans),
      num_pairs_(measures.declare({"num_pairs", Combine::sum, /*whole=*/true})) {}

PreferenceTerms PreferenceObjective::terms_of(const parallel::Microbatch& batch,
                                              const SequenceScores& scores) const {
  const at::Tensor reference = reference_->sums(batch).to(at::kCPU);
  return preference_terms(setup_.config, scores, reference, setup_.seq_len);
}

at::Tensor PreferenceObjective::forward(const parallel::Microbatch& batch, const at::Tensor& hidden,
                                        double grad_scale, ObjectiveGrads& saved) {
  const at::NoGradGuard no_grad;
  const TargetRows targets(batch, hidden);
  const at::Tensor sequences = sequences_of(batch, targets);
  const bool targets_checked = check_targets(batch, head().classes);
  const at::Tensor log_probs =
      token_scores(head(), targets.rows, targets.targets, {.targets_checked = targets_checked})
          .log_probs;
  const PreferenceTerms terms =
      terms_of(batch, sum_sequences(batch.num_pairs, sequences, log_probs, setup_.context));

  const auto loss =
      cross_entropy(head(), targets.rows, targets.targets,
                    {.grad_scale = grad_scale,
                     .row_weights = terms.row_weights.index_select(0, sequences)
                                        .to(hidden.device(), ops::accumulate_type(hidden)),
                     .targets_checked = targets_checked});
  saved = {targets.spread(loss.grad_x, hidden), loss.grad_weight};

  const bool tells = gives_loss() && setup_.tensor.rank() == 0;
  means_.add(batch.step, tells ? sums_of(terms) : std::array<double, kMeans.size()>{},
             tells ? static_cast<double>(batch.num_pairs) : 0);
  measures_.record(num_pairs_, means_.weight());
  return terms.losses.sum().mul_(gives_loss() ? 1 : 0).to(hidden.device());
}

void PreferenceObjective::backward(ObjectiveGrads& saved) {
  add_head_gradient(registry_, setup_.head, saved);
}

std::span<const std::string_view> PreferenceObjective::evaluated() const {
  return std::span(kMeans).first(kEvaluated);
}

at::Tensor PreferenceObjective::evaluate(const parallel::Microbatch& batch,
                                         const at::Tensor& hidden) const {
  const PreferenceTerms terms =
      terms_of(batch, sequence_scores(batch, hidden, head(), setup_.context));
  std::vector<double> sums{terms.losses.sum().item<double>()};
  const auto means = sums_of(terms);
  sums.insert(sums.end(), means.begin(), means.begin() + kEvaluated);
  return at::tensor(sums, hidden.options().dtype(at::kDouble)).mul_(gives_loss() ? 1 : 0);
}

}  // namespace trireme::objective
