#pragma once
#include "objective/preference.hpp"
#include "unit/objective/support.hpp"

/// Batches of preference pairs, and their loss by definition.
namespace trireme::testing {

inline constexpr std::int64_t kSeqLen = 17;

inline std::uint64_t key_of_record(std::int64_t record) {
  return 0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(record + 1);
}

/// Returns the chosen and rejected sides of 3 pairs in one row: `lengths` of the 6 sequences, then
/// padding. A sequence of one token has no target; every third target is masked.
inline parallel::Microbatch pairs(const std::vector<std::int64_t>& lengths = {5, 3, 2, 6, 4, 3}) {
  parallel::Microbatch batch = batch_of_rows(1);
  batch.num_pairs = static_cast<std::int64_t>(lengths.size()) / 2;
  batch.sequence_of = at::full({1, kLength}, -1, at::kLong);
  std::vector<std::int64_t> bounds{0};
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    const std::int64_t end = bounds.back() + lengths[i];
    batch.sequence_of[0].slice(0, bounds.back(), end).fill_(static_cast<std::int64_t>(i));
    batch.targets[0][end - 1] = objective::kIgnoredTarget;
    bounds.push_back(end);
  }
  batch.targets[0].slice(0, bounds.back(), kLength).fill_(objective::kIgnoredTarget);
  bounds.push_back(kLength);
  batch.bounds = {bounds};
  for (std::int64_t pair = 0; pair < batch.num_pairs; ++pair)
    batch.pair_records.push_back(10 - pair);
  for (const std::int64_t record : batch.pair_records)
    batch.pair_keys.push_back(key_of_record(record));
  return batch;
}

/// [2 P] each.
inline objective::SequenceScores plain_scores(const parallel::Microbatch& batch,
                                              const at::Tensor& x, const at::Tensor& w) {
  const at::Tensor log_probs = at::log_softmax(at::matmul(x, w.t()), -1).flatten(0, 1);
  const at::Tensor targets = batch.targets.flatten();
  const at::Tensor valid = targets.ne(objective::kIgnoredTarget).to(at::kDouble);
  const at::Tensor picked =
      log_probs.gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1) * valid;
  const at::Tensor of =
      batch.sequence_of.flatten().unsqueeze(0).eq(at::arange(2 * batch.num_pairs).unsqueeze(1));
  return {at::where(of, picked, at::zeros({}, at::kDouble)).sum(1),
          (of.to(at::kDouble) * valid).sum(1)};
}

/// Computes the loss of a batch by its definition, one pair after another.
inline at::Tensor plain_loss(const objective::PreferenceConfig& config,
                             const parallel::Microbatch& batch, const at::Tensor& reference,
                             const at::Tensor& x, const at::Tensor& w) {
  const auto [sums, counts] = plain_scores(batch, x, w);
  const auto form = [&](const at::Tensor& of, std::int64_t i) {
    const double n = counts[i].item<double>();
    if (config.logprob == "mean") return n > 0 ? of[i] / n : of[i] * 0;
    return config.logprob == "sum" ? of[i] * 1 : of[i] / static_cast<double>(kSeqLen - 1);
  };
  at::Tensor total = sums.sum() * 0;  // a loss without pairs depends on nothing
  for (std::int64_t p = 0; p < batch.num_pairs; ++p) {
    const at::Tensor m = (form(sums, 2 * p) - form(sums, 2 * p + 1)) -
                         (form(reference, 2 * p) - form(reference, 2 * p + 1));
    const double e = config.label_smoothing;
    const at::Tensor z = config.loss == "simpo" ? config.beta * m - config.gamma : config.beta * m;
    if (config.loss == "ipo") {
      total = total + (m - 1 / (2 * config.beta)).square();
    } else if (config.loss == "orpo") {
      const auto odds = [&](std::int64_t i) {
        const at::Tensor likelihood = form(sums, i).exp();
        return likelihood / (1 - likelihood);
      };
      const bool both = counts[2 * p].item<double>() > 0 && counts[2 * p + 1].item<double>() > 0;
      if (both)
        total = total - config.beta * at::log(at::sigmoid(at::log(odds(2 * p) / odds(2 * p + 1))));
    } else {
      total = total - (1 - e) * at::log(at::sigmoid(z)) - e * at::log(at::sigmoid(-z));
    }
    const double n = counts[2 * p].item<double>();
    if (n > 0) total = total - config.sft_weight * sums[2 * p] / n;
  }
  return total;
}

/// A reference with given scores.
class FixedReference final : public objective::ReferenceScores {
 public:
  explicit FixedReference(at::Tensor sums) : sums_(std::move(sums)) {}

  at::Tensor sums(const parallel::Microbatch& /*batch*/) override { return sums_; }

 private:
  at::Tensor sums_;
};

inline at::Tensor some_reference(std::int64_t num_pairs) {
  return normal({2 * num_pairs}, 5).mul(3).sub(7);
}

/// Returns scores with which some pairs are ranked correctly and some are not.
inline at::Tensor mixed_reference(std::int64_t num_pairs) {
  return at::tensor({-40.0, -2.0, -2.0, -40.0, -35.0, -3.0})
      .to(at::kDouble)
      .slice(0, 0, 2 * num_pairs);
}

}  // namespace trireme::testing
