#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/attention/plan.hpp"

/// Selects the positions of a row for each context-parallel rank. The functions depend only on the
/// row's length and document boundaries, so every rank knows the positions of all ranks. No
/// LibTorch.
namespace trireme::parallel {

/// The balancing methods of context parallelism:
///   zigzag  2c equal chunks; rank i holds chunks i and 2c - 1 - i. If a row is one document, every
///           rank has the same number of visible (query, key) pairs.
///   work    Up to 16 chunks per rank. The chunks are assigned from the most work to the least,
///           each to the rank with the least work so far. This method suits rows of several
///           documents, where zigzag is uneven.
enum class ContextBalance { zigzag, work };

// indexed by ContextBalance
inline constexpr std::array<std::string_view, 2> kContextBalances{"zigzag", "work"};

/// Returns the positions of every rank, one list for each row. `rows` defines which keys each query
/// of a whole row sees. With more than one rank, throws Error(usage) if `length` is not divisible
/// by 2 * `ranks`.
std::vector<ops::RowPositions> shard_positions(ContextBalance balance,
                                               const ops::AttentionSetup& rows, std::int64_t batch,
                                               std::int64_t length, int ranks);

/// Returns the number of visible (query, key) pairs on the busiest rank, divided by the mean over
/// ranks; 1 means balanced.
double work_imbalance(const std::vector<ops::RowPositions>& positions,
                      const ops::AttentionSetup& rows);

}  // namespace trireme::parallel
