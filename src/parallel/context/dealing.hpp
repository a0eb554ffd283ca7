#pragma once
#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "ops/attention/plan.hpp"

/// Which places of a row each context-parallel rank holds. Pure functions of the row's length and
/// borders, so that every rank knows the places of all. No LibTorch.
namespace trireme {

/// zigzag  2c equal chunks; rank i holds chunks i and 2c - 1 - i: as many pairs of a query and a key
///         that it sees on each rank, where a row is one document
/// work    up to 16 blocks a rank, heaviest first to the rank with the least work; where documents
///         end, the keys that queries see do too, and zigzag no longer divides the work evenly
enum class ContextBalance { zigzag, work };

inline constexpr std::array<std::string_view, 2> kContextBalances{"zigzag", "work"};  // by value

/// Returns the places of every rank, one list a row. `rows`: which keys the queries of whole rows see.
/// Throws Error(usage) if length is not divisible by 2 ranks (ranks above 1).
std::vector<ops::RowPlaces> deal_places(ContextBalance balance, const ops::AttentionSetup& rows,
                                        std::int64_t batch, std::int64_t length, int ranks);

/// Returns the number of pairs of a query and a key that it sees on the busiest rank, divided by their
/// mean over ranks; 1: even.
double work_imbalance(const std::vector<ops::RowPlaces>& places, const ops::AttentionSetup& rows);

}  // namespace trireme
