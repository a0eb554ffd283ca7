#pragma once
#include <array>
#include <cstdint>

#include "data/batch.hpp"

namespace trireme::testing {

/// Divisible by 2 cp and by tp cp of every factorization.
inline constexpr std::int64_t kRowLength = 48;

enum class RowKind : std::size_t {
  documents,     // of random lengths, two rows a micro-batch
  one_document,  // a row, over every chunk's edge
  uneven,        // documents; one row a micro-batch or two, by rank and micro-batch
  masked         // one document a row: the last rank of dp has no target, others in one chunk
};

inline constexpr std::array kRowKindNames{"documents", "one document", "uneven", "masked"};

/// The rows of an update, by rank of dp and micro-batch; the same whatever tp and cp are.
struct LayoutRows {
  RowKind kind = RowKind::documents;
  std::int64_t vocab = 0;
  std::int64_t dp = 1;
  std::int64_t accumulation = 1;

  [[nodiscard]] std::int64_t in_micro_batch(std::int64_t rank, std::int64_t i) const;

  /// Of the micro-batches before (rank, i).
  [[nodiscard]] std::int64_t before(std::int64_t rank, std::int64_t i) const;

  [[nodiscard]] std::int64_t in_update() const { return before(dp, 0); }

  [[nodiscard]] std::int64_t first_without_targets() const;

  /// Rows [begin, begin + count) of update `step`.
  [[nodiscard]] Batch of(std::int64_t step, std::int64_t begin, std::int64_t count) const;
};

}  // namespace trireme::testing
