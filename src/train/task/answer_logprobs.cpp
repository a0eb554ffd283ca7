#include "train/task/answer_logprobs.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "objective/policy.hpp"
#include "train/step/microbatches.hpp"
#include "train/task/critic.hpp"

namespace trireme::train {
namespace {

/// Distributes the values of all targets to their tokens. Other tokens get 0.
void spread(const at::Tensor& values, std::span<Rollout> rollouts,
            std::vector<double> Rollout::*member) {
  const double* next = values.const_data_ptr<double>();
  for (Rollout& one : rollouts) {
    (one.*member).assign(one.ids.size(), 0);
    for (std::size_t i = 0; i < one.ids.size(); ++i)
      if (one.mask[i]) (one.*member)[i] = *next++;
  }
}

}  // namespace

/// Calls use(batch, answers) with the answers of one micro-batch after another.
template <class Use>
void AnswerLogprobs::for_batches(std::span<Rollout> rollouts, std::int64_t step,
                                 const Use& use) const {
  RlConfig plain = config_;
  plain.correction = "none";
  const auto rows = static_cast<std::size_t>(context_.config.train.micro_batch * config_.group);
  const std::int64_t pad_id = context_.stream.first_set().pad_id().value_or(0);
  for (std::size_t first = 0; first < rollouts.size(); first += rows) {
    const std::span<Rollout> some =
        rollouts.subspan(first, std::min(rows, rollouts.size() - first));
    UpdateTotals totals{.answers = 1, .trained_tokens = 1, .targets = 1, .batches = 1};
    for (const Rollout& one : some)
      totals.row_tokens = std::max(totals.row_tokens, std::ssize(one.prompt) + std::ssize(one.ids));
    use(to_microbatch(make_policy_batch(plain, some, totals, pad_id),
                      context_.model.registry().device(), step, /*training=*/false),
        some);
  }
}

at::Tensor AnswerLogprobs::own_logprobs(model::Transformer& model,
                                        const parallel::Microbatch& batch) const {
  const ops::Path path = ops::path_of(context_.config.train.fused_ops);
  const objective::Head head = objective::first_classes(
      objective::head_of(model.registry(), model.head_weight(), {}, path), num_ids_);
  return objective::policy_logprobs(batch, model.hidden(batch), head, config_.loss.temperature);
}

at::Tensor AnswerLogprobs::reference_logprobs(model::Transformer& model,
                                              parallel::Microbatch batch) const {
  batch.adapters = false;
  const FrozenModel* const frozen = context_.frozen;
  if (frozen == nullptr) return own_logprobs(model, batch);
  const ops::Path path = ops::path_of(context_.config.train.fused_ops);
  return objective::policy_logprobs(batch, frozen->hidden(batch),
                                    objective::first_classes(frozen->head(path), num_ids_),
                                    config_.loss.temperature);
}

void AnswerLogprobs::add(model::Transformer& model, std::span<Rollout> rollouts,
                         std::int64_t step) const {
  for (Rollout& one : rollouts) one.old_logprobs = one.rollout_logprobs;
  if (!config_.recomputes() && !config_.has_reference() && context_.critic == nullptr) return;
  for_batches(rollouts, step, [&](const parallel::Microbatch& batch, std::span<Rollout> some) {
    if (config_.recomputes()) spread(own_logprobs(model, batch), some, &Rollout::current_logprobs);
    if (config_.has_reference())
      spread(reference_logprobs(model, batch), some, &Rollout::ref_logprobs);
    if (context_.critic != nullptr) spread(context_.critic->values(batch), some, &Rollout::values);
  });
}

TokenSum AnswerLogprobs::squared_changes(model::Transformer& model, std::span<Rollout> rollouts,
                                         std::int64_t step) const {
  TokenSum total;
  for_batches(rollouts, step, [&](const parallel::Microbatch& batch, std::span<Rollout> some) {
    const at::Tensor now = own_logprobs(model, batch);
    const double* next = now.const_data_ptr<double>();
    for (const Rollout& one : some) {
      for (std::size_t i = 0; i < one.ids.size(); ++i) {
        if (!one.mask[i]) continue;
        const double log_ratio = *next++ - one.old_logprobs[i];
        if (!is_trained(config_, one)) continue;
        total.count += 1;
        total.sum += 0.5 * log_ratio * log_ratio;
      }
    }
  });
  return total;
}

}  // namespace trireme::train
