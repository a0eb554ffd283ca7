#include "train/step/graph_key.hpp"

#include <algorithm>
#include <bit>

#include "ops/attention/fixed_calls.hpp"

namespace trireme::train {
namespace {

/// Least number in PassesKey::longest. Flash attention divides a document into parts of at most this
/// length, so a smaller number saves nothing. With a longest document of one token, flash attention
/// also requires that no document is empty.
constexpr std::int64_t kLeastLongest = 128;

std::int64_t power_of_two_from(std::int64_t number) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(number)));
}

}  // namespace

PassesKey passes_key(const parallel::Microbatch& batch, std::int64_t window) {
  const std::int64_t documents = ops::num_documents(batch.bounds, batch.rows());
  const std::int64_t longest = ops::longest_document(batch.bounds, batch.length());
  return {.rows = batch.rows(),
          .length = batch.length(),
          .documents = documents == batch.rows() ? 0 : power_of_two_from(documents),
          .longest = std::min(std::max(power_of_two_from(longest), kLeastLongest), batch.length()),
          .window = window,
          .has_weights = batch.target_weights.defined()};
}

}  // namespace trireme::train
