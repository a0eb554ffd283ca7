#include "train/task/answer_logprobs.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "objective/policy.hpp"
#include "parallel/context/shard_sequence.hpp"
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

AnswerLogprobs::AnswerLogprobs(const RlConfig& config, const SourceContext& context,
                               const RolloutRanks& ranks, std::int64_t num_ids)
    : config_(config),
      context_(context),
      ranks_(ranks),
      num_ids_(num_ids),
      own_stages_(context.model, context.mesh) {
  if (context.frozen != nullptr)
    reference_stages_.emplace(context.frozen->transformer(), context.mesh);
}

AnswerLogprobs::Batches AnswerLogprobs::make_batches(std::span<const Rollout> rollouts,
                                                     std::int64_t step) const {
  RlConfig plain = config_;
  plain.correction = "none";
  const auto rows = static_cast<std::size_t>(context_.config.train.micro_batch * config_.group);
  const std::int64_t pad_id = context_.stream.first_set().pad_id().value_or(0);
  Batches result;
  for (std::size_t first = 0; first < rollouts.size(); first += rows) {
    const std::span<const Rollout> some =
        rollouts.subspan(first, std::min(rows, rollouts.size() - first));
    const UpdateTotals totals{.answers = 1, .trained_tokens = 1, .targets = 1, .batches = 1};
    data::Batch batch = make_policy_batch(plain, some, totals,
                                          row_tokens_of(context_.config.parallel, some), pad_id);
    for (data::PolicyTarget& target : batch.policy_targets)
      target.rollout_logprob = static_cast<double>(result.num_targets++);
    result.micro_batches.push_back(parallel::shard_sequence(
        to_microbatch(batch, context_.model.registry().device(), step, /*training=*/false),
        context_.mesh));
  }
  return result;
}

/// Returns the values [num_targets] of all targets, on all ranks of the group.
at::Tensor AnswerLogprobs::gather(const Batches& batches,
                                  const std::function<void(const Use&)>& compute) const {
  const at::Tensor all = at::zeros({batches.num_targets}, at::kDouble);
  const bool gives = context_.model.tensor().rank() == 0;
  compute([&](std::size_t number, const at::Tensor& values) {
    const at::Tensor& policy = batches.micro_batches[number].policy;
    if (gives && policy.defined()) all.index_copy_(0, policy.select(1, 0).to(at::kLong), values);
  });
  ranks_.add_up(all);
  return all;
}

at::Tensor AnswerLogprobs::own_logprobs(const Batches& batches) {
  model::Transformer& model = context_.model;
  const ops::Path path = ops::path_of(context_.config.train.fused_ops);
  return gather(batches, [&](const Use& use) {
    own_stages_.forward(batches.micro_batches, [&](std::size_t i, const at::Tensor& hidden) {
      const objective::Head head =
          objective::head_of(model.registry(), model.head_weight(), model.tensor(), path);
      use(i, objective::policy_logprobs(batches.micro_batches[i], hidden,
                                        objective::first_classes(head, num_ids_),
                                        config_.loss.temperature));
    });
  });
}

at::Tensor AnswerLogprobs::reference_logprobs(Batches batches) {
  for (parallel::Microbatch& batch : batches.micro_batches) batch.adapters = false;
  const FrozenModel* const frozen = context_.frozen;
  if (frozen == nullptr) return own_logprobs(batches);
  const ops::Path path = ops::path_of(context_.config.train.fused_ops);
  return gather(batches, [&](const Use& use) {
    reference_stages_->forward(batches.micro_batches, [&](std::size_t i, const at::Tensor& hidden) {
      use(i, objective::policy_logprobs(batches.micro_batches[i], hidden,
                                        objective::first_classes(frozen->head(path), num_ids_),
                                        config_.loss.temperature));
    });
  });
}

at::Tensor AnswerLogprobs::critic_values(const Batches& batches) {
  return gather(batches,
                [&](const Use& use) { context_.critic->values(batches.micro_batches, use); });
}

void AnswerLogprobs::add(std::span<Rollout> rollouts, std::int64_t step) {
  for (Rollout& one : rollouts) one.old_logprobs = one.rollout_logprobs;
  if (!config_.recomputes() && !config_.has_reference() && context_.critic == nullptr) return;
  const Batches batches = make_batches(rollouts, step);
  if (config_.recomputes()) spread(own_logprobs(batches), rollouts, &Rollout::current_logprobs);
  if (config_.has_reference())
    spread(reference_logprobs(batches), rollouts, &Rollout::ref_logprobs);
  if (context_.critic != nullptr) spread(critic_values(batches), rollouts, &Rollout::values);
}

TokenSum AnswerLogprobs::squared_changes(std::span<Rollout> rollouts, std::int64_t step) {
  const at::Tensor now = own_logprobs(make_batches(rollouts, step));
  const double* next = now.const_data_ptr<double>();
  TokenSum total;
  for (const Rollout& one : rollouts) {
    for (std::size_t i = 0; i < one.ids.size(); ++i) {
      if (!one.mask[i]) continue;
      const double log_ratio = *next++ - one.old_logprobs[i];
      if (!is_trained(config_, one)) continue;
      total.count += 1;
      total.sum += 0.5 * log_ratio * log_ratio;
    }
  }
  return total;
}

}  // namespace trireme::train
