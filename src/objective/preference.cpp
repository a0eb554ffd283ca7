#include "objective/preference.hpp"

#include <ATen/ATen.h>

#include <array>

#include "objective/weighted_sequences.hpp"

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
  const Head output = head();
  const WeightedSequences sequences(batch, hidden, output, setup_.context);
  const PreferenceTerms terms = terms_of(batch, sequences.scores());
  saved = sequences.gradients(terms.row_weights, grad_scale);

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
  const auto means = sums_of(terms);
  return evaluation_sums(terms.losses, std::span(means).first(kEvaluated), hidden, gives_loss());
}

}  // namespace trireme::objective
