#pragma once
#include <array>
#include <cstdint>
#include <vector>

#include "ops/attention/plan.hpp"

/// Divides the queries of a plan into tiles for the kernels of a CPU. No LibTorch.
namespace trireme::ops {

inline constexpr std::int64_t kTileQueries = 64;
inline constexpr std::int64_t kBundleKeys = 512;  // most keys of several documents together

/// Up to 64 queries. Short documents share a tile, because a tile takes the same time with one
/// query as with 64.
struct QueryTile {
  std::vector<TokenRange> tokens;  // queries, in order
  std::int64_t count = 0;
  KeyInterval keys{0, 0};  // contains all keys that the queries see; empty: none
  /// The keys [begin, end) that each query sees. After the last query, its interval is repeated.
  std::array<std::int32_t, kTileQueries> begin{};
  std::array<std::int32_t, kTileQueries> end{};
};

/// Consecutive documents of one row. Intervals count the keys of all of them, in the order of `keys`.
struct DocumentBundle {
  std::int64_t row = -1;         // -1: the same for every row
  std::vector<TokenRange> keys;  // tokens, by document and position
  std::int64_t num_keys = 0;
  std::vector<QueryTile> tiles;
};

/// Returns the documents in bundles of at most `most_keys` keys; a longer document is alone.
std::vector<DocumentBundle> bundle_documents(const AttentionPlan& plan, std::int64_t most_keys);

}  // namespace trireme::ops
