#pragma once
#include <array>
#include <cstdint>

#include "data/batch.hpp"

namespace trireme::testing {

/// A multiple of 2 cp and of tp cp for every factorization.
inline constexpr std::int64_t kRowLength = 48;

enum class RowKind : std::size_t {
  documents,     // documents of random length, two rows per micro-batch
  one_document,  // one document per row, which crosses every chunk edge
  uneven,        // documents; one or two rows per micro-batch, depending on rank and micro-batch
  // One document per row: the last rank of dp has no target, the others have targets in one chunk
  // only.
  masked
};

inline constexpr std::array kRowKindNames{"documents", "one document", "uneven", "masked"};

/// Returns the rows of an update for each rank of dp and micro-batch. They do not depend on tp and
/// cp.
struct LayoutRows {
  RowKind kind = RowKind::documents;
  std::int64_t vocab = 0;
  std::int64_t dp = 1;
  std::int64_t accumulation = 1;

  [[nodiscard]] std::int64_t in_micro_batch(std::int64_t rank, std::int64_t i) const;

  /// Returns the number of rows in the micro-batches before (rank, i).
  [[nodiscard]] std::int64_t before(std::int64_t rank, std::int64_t i) const;

  [[nodiscard]] std::int64_t in_update() const { return before(dp, 0); }

  [[nodiscard]] std::int64_t first_without_targets() const;

  /// Returns rows [begin, begin + count) of update `step`.
  [[nodiscard]] data::Batch of(std::int64_t step, std::int64_t begin, std::int64_t count) const;
};

}  // namespace trireme::testing
