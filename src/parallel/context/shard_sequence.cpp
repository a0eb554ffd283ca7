#include "parallel/context/shard_sequence.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/by_name.hpp"
#include "core/error.hpp"
#include "ops/upload.hpp"
#include "parallel/context/sequence_sharding.hpp"

namespace trireme::parallel {

ContextGroup context_group(const Mesh& mesh) {
  if (mesh.size(Axis::cp) == 1) return {};
  return {&mesh.group(Axis::cp), by_name<ContextAlgorithm>(kContextForms, mesh.config().cp_form)};
}

namespace {

/// Returns the target tokens at the positions `own` of whole rows of `length` tokens. Appends the
/// numbers that these targets have in the whole rows to `numbers`.
std::shared_ptr<const TargetTokens> select_targets(const TargetTokens& whole, std::int64_t length,
                                                   const ops::RowPositions& own,
                                                   std::vector<std::int64_t>& numbers) {
  auto selected = std::make_shared<TargetTokens>();
  selected->least = whole.least;
  selected->most = whole.most;
  std::int64_t token = 0;  // number of tokens of this rank before the range
  for (std::size_t row = 0; row < own.size(); ++row) {
    for (const ops::TokenRange& range : own[row]) {
      const std::int64_t first = static_cast<std::int64_t>(row) * length + range.first;
      for (auto next = std::ranges::lower_bound(whole.tokens, first);
           next != whole.tokens.end() && *next < first + range.length; ++next) {
        selected->tokens.push_back(token + *next - first);
        numbers.push_back(next - whole.tokens.begin());
        if (!whole.sequences.empty())
          selected->sequences.push_back(whole.sequences[static_cast<std::size_t>(numbers.back())]);
      }
      token += range.length;
    }
  }
  selected->index = ops::upload(at::tensor(selected->tokens, at::kLong), whole.index.device());
  return selected;
}

}  // namespace

Microbatch shard_sequence(Microbatch whole, const Mesh& mesh) {
  const int ranks = mesh.size(Axis::cp);
  if (ranks == 1) return whole;
  const auto balance = by_name<ContextBalance>(kContextBalances, mesh.config().cp_balance);
  whole.positions_of_ranks =
      shard_positions(balance, {.bounds = whole.bounds}, whole.rows(), whole.length(), ranks);
  const ops::RowPositions& own =
      whole.positions_of_ranks[static_cast<std::size_t>(mesh.rank(Axis::cp))];
  TRIREME_ASSERT(whole.target_tokens || !whole.policy.defined());
  if (whole.target_tokens) {
    std::vector<std::int64_t> numbers;
    whole.target_tokens = select_targets(*whole.target_tokens, whole.length(), own, numbers);
    if (whole.policy.defined())
      whole.policy = whole.policy.index_select(0, at::tensor(numbers, at::kLong));
  }
  if (whole.mismatched)
    whole.mismatched = std::make_shared<Microbatch>(shard_sequence(*whole.mismatched, mesh));
  // the previous token of a token may be on another rank
  whole.previous = previous_tokens(whole.tokens, whole.positions);
  for (at::Tensor* per_token : whole.per_token())
    if (per_token->defined()) *per_token = select_positions(*per_token, own);
  return whole;
}

}  // namespace trireme::parallel
