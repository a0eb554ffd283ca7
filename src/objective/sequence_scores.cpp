#include "objective/sequence_scores.hpp"

#include "core/error.hpp"
#include "parallel/collectives.hpp"

namespace trireme::objective {
namespace {

at::Tensor zeros_of_sequences(std::int64_t num_pairs) {
  return at::zeros({2 * num_pairs}, at::TensorOptions().dtype(at::kDouble));
}

}  // namespace

at::Tensor sequences_of(const parallel::Microbatch& batch, const TargetRows& targets) {
  if (batch.num_pairs == 0 && targets.index.numel() == 0) return at::empty({0}, at::kLong);
  if (!batch.sequence_of.defined())
    fail(ErrorKind::internal, "a preference loss received a batch without preference pairs");
  at::Tensor sequences = batch.target_tokens ? at::tensor(batch.target_tokens->sequences, at::kLong)
                                             : targets.of(batch.sequence_of).to(at::kCPU);
  if (sequences.numel() > 0) {
    const auto least = sequences.min().item<std::int64_t>();
    const auto most = sequences.max().item<std::int64_t>();
    if (least < 0 || most >= 2 * batch.num_pairs) {
      fail(ErrorKind::internal, "targets of sequences {} to {} in a batch of {} preference pairs",
           least, most, batch.num_pairs);
    }
  }
  return sequences;
}

SequenceScores sum_sequences(std::int64_t num_pairs, const at::Tensor& sequences,
                             const at::Tensor& log_probs, const parallel::ContextGroup& context) {
  // Add on the host, because a GPU adds in no fixed order.
  const at::Tensor values = log_probs.to(at::kCPU);
  SequenceScores scores{zeros_of_sequences(num_pairs), zeros_of_sequences(num_pairs)};
  scores.sums.index_add_(0, sequences, values);
  scores.counts.index_add_(0, sequences, at::ones_like(values));
  if (context.size() == 1) return scores;
  const at::Tensor both = at::stack({scores.sums, scores.counts}).to(log_probs.device());
  parallel::all_reduce(*context.group, both, comm::ReduceOp::sum, "log-probabilities")->wait();
  const at::Tensor of_all = both.to(at::kCPU);
  return {of_all[0], of_all[1]};
}

at::Tensor sequence_counts(const parallel::Microbatch& batch,
                           const parallel::ContextGroup& context) {
  const at::Tensor sequences =
      batch.target_tokens
          ? at::tensor(batch.target_tokens->sequences, at::kLong)
          : batch.sequence_of.flatten().index_select(0, target_index(batch)).to(at::kCPU);
  const at::Tensor none =
      at::zeros({sequences.numel()}, batch.targets.options().dtype(at::kDouble));
  return sum_sequences(batch.num_pairs, sequences, none, context).counts;
}

SequenceScores sequence_scores(const parallel::Microbatch& batch, const at::Tensor& hidden,
                               const Head& head, const parallel::ContextGroup& context) {
  const at::NoGradGuard no_grad;
  const TargetRows targets(batch, hidden);
  const at::Tensor log_probs = token_scores(head, targets.rows, targets.targets,
                                            {.targets_checked = check_targets(batch, head.classes)})
                                   .log_probs;
  return sum_sequences(batch.num_pairs, sequences_of(batch, targets), log_probs, context);
}

at::Tensor NoReference::sums(const parallel::Microbatch& batch) {
  return zeros_of_sequences(batch.num_pairs);
}

std::vector<PairScore> pair_scores(const parallel::Microbatch& batch,
                                   const SequenceScores& scores) {
  const auto sums = scores.sums.accessor<double, 1>();
  const auto counts = scores.counts.accessor<double, 1>();
  std::vector<PairScore> result;
  for (std::int64_t pair = 0; pair < batch.num_pairs; ++pair) {
    const auto at = static_cast<std::size_t>(pair);
    PairScore score{batch.pair_keys[at], batch.pair_records[at]};
    for (std::int64_t side = 0; side < 2; ++side) {
      const auto to = static_cast<std::size_t>(side);
      score.sums[to] = sums[2 * pair + side];
      score.counts[to] = static_cast<std::int32_t>(counts[2 * pair + side]);
    }
    result.push_back(score);
  }
  return result;
}

StoredReference::StoredReference(std::span<const PairScore> scores, std::string where,
                                 const parallel::ContextGroup& context)
    : where_(std::move(where)), context_(context) {
  scores_.reserve(scores.size());
  for (const PairScore& score : scores) scores_.emplace(score.key, score);
}

at::Tensor StoredReference::sums(const parallel::Microbatch& batch) {
  const at::Tensor counts = sequence_counts(batch, context_);
  at::Tensor result = zeros_of_sequences(batch.num_pairs);
  auto values = result.accessor<double, 1>();
  const auto count_of = counts.accessor<double, 1>();
  for (std::int64_t i = 0; i < 2 * batch.num_pairs; ++i) {
    const auto pair = static_cast<std::size_t>(i / 2);
    const auto side = static_cast<std::size_t>(i % 2);
    const auto found = scores_.find(batch.pair_keys[pair]);
    if (found == scores_.end()) {
      fail(ErrorKind::data, "{}: no log-probabilities of pair {} of the data set", where_,
           batch.pair_records[pair]);
    }
    if (count_of[i] == 0) continue;
    const PairScore& score = found->second;
    if (score.counts[side] != count_of[i]) {
      fail(
          ErrorKind::data,
          "{}: pair {} of the data set has {} targets in this file but {} in the data. The file was made from different data",
          where_, batch.pair_records[pair], score.counts[side], count_of[i]);
    }
    values[i] = score.sums[side];
  }
  return result;
}

}  // namespace trireme::objective
