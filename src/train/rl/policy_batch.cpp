#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.hpp"
#include "train/rl/rollout.hpp"

namespace trireme::train {
namespace {

/// Returns the factor of each token that corrects the difference between generation and training.
std::vector<double> corrections(const RlConfig& config, const Rollout& rollout) {
  std::vector<double> factors(rollout.ids.size(), 1);
  if (config.correction == "none") return factors;
  const bool is_mask = config.correction.ends_with("_mask");
  const auto limited = [&](double ratio) {
    return ratio <= config.correction_cap ? ratio : is_mask ? 0 : config.correction_cap;
  };
  double sum = 0;
  for (std::size_t i = 0; i < factors.size(); ++i) {
    const double gap = rollout.current_logprobs[i] - rollout.rollout_logprobs[i];
    factors[i] = limited(std::exp(gap));
    if (rollout.mask[i]) sum += gap;
  }
  if (config.correction.starts_with("sequence"))
    std::fill(factors.begin(), factors.end(), limited(std::exp(sum)));
  return factors;
}

double token_weight(const RlConfig& config, const Rollout& rollout, const UpdateTotals& totals) {
  if (rollout.truncated && config.truncated == "mask") return 0;
  const auto answers = static_cast<double>(totals.answers);
  double divisor = answers * static_cast<double>(rollout.num_trained());
  if (config.divide == "token") divisor = static_cast<double>(totals.trained_tokens);
  if (config.divide == "constant") divisor = answers * static_cast<double>(config.max_new_tokens);
  return static_cast<double>(totals.targets) / std::max(divisor, 1.0);
}

void add_row(const RlConfig& config, const Rollout& rollout, const UpdateTotals& totals,
             std::int64_t begin, data::Batch& batch) {
  const auto prompt = std::ssize(rollout.prompt);
  const auto length = prompt + std::ssize(rollout.ids);
  TRIREME_ASSERT(length <= batch.T);
  std::copy(rollout.prompt.begin(), rollout.prompt.end(), batch.tokens.begin() + begin);
  std::copy(rollout.ids.begin(), rollout.ids.end(), batch.tokens.begin() + begin + prompt);
  for (std::int64_t i = 0; i < batch.T; ++i)
    batch.positions[static_cast<std::size_t>(begin + i)] = i < length ? i : i - length;
  const double weight = token_weight(config, rollout, totals);
  const std::vector<double> factors = corrections(config, rollout);
  for (std::size_t i = 0; i < rollout.ids.size(); ++i) {
    if (!rollout.mask[i]) continue;
    batch.targets[static_cast<std::size_t>(begin + prompt - 1) + i] = rollout.ids[i];
    batch.policy_targets.push_back(
        {rollout.rollout_logprobs[i], rollout.old_logprobs[i],
         rollout.ref_logprobs.empty() ? 0 : rollout.ref_logprobs[i],
         rollout.advantages.empty() ? rollout.advantage : rollout.advantages[i], factors[i], weight,
         rollout.values.empty() ? 0 : rollout.values[i],
         rollout.returns.empty() ? 0 : rollout.returns[i]});
  }
  batch.row_lengths.push_back(length);
  batch.segment_bounds.push_back(static_cast<std::int32_t>(begin + length));
  if (length < batch.T) batch.segment_bounds.push_back(static_cast<std::int32_t>(begin + batch.T));
}

}  // namespace

data::Batch make_policy_batch(const RlConfig& config, std::span<const Rollout> rollouts,
                              const UpdateTotals& totals, std::int64_t row_tokens,
                              std::int64_t pad_id) {
  data::Batch batch;
  batch.B = std::ssize(rollouts);
  batch.T = row_tokens;
  const auto size = static_cast<std::size_t>(batch.B * batch.T);
  batch.tokens.assign(size, pad_id);
  batch.targets.assign(size, data::kIgnoreTarget);
  batch.positions.assign(size, 0);
  batch.segment_bounds.push_back(0);
  for (std::int64_t row = 0; row < batch.B; ++row) {
    const Rollout& one = rollouts[static_cast<std::size_t>(row)];
    add_row(config, one, totals, row * batch.T, batch);
    batch.sample_indices.push_back(one.prompt_index * config.group + one.sample);
  }
  batch.num_targets = std::ssize(batch.policy_targets);
  batch.update_targets = totals.targets;
  batch.update_samples = totals.answers;
  batch.update_batches = totals.batches;
  return batch;
}

}  // namespace trireme::train
