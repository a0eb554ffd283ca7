#pragma once
#include <cstdint>
#include <vector>

namespace trireme::parallel {

/// The part of a logical tensor that a rank holds, in global coordinates: a rectangle of the
/// tensor, then a flat range of the rectangle's row-major elements. Tensor, expert and pipeline
/// parallelism split rectangles; ZeRO splits flat ranges. Padding is never included: offsets and
/// extents refer to the logical tensor.
struct Slice {
  std::vector<std::int64_t> offset;  // per dim, of the rectangle
  std::vector<std::int64_t> extent;  // per dim
  std::int64_t flat_begin = 0;       // half-open range of the rectangle's elements
  std::int64_t flat_end = 0;

  static Slice whole(const std::vector<std::int64_t>& shape);

  [[nodiscard]] std::int64_t rectangle_count() const noexcept;

  [[nodiscard]] std::int64_t count() const noexcept { return flat_end - flat_begin; }

  bool operator==(const Slice&) const = default;
};

/// A sequence of elements that a source slice and a target slice of a tensor share. The elements
/// are contiguous in both slices.
struct SliceRun {
  std::int64_t source_index = 0;  // element in the source's flat range
  std::int64_t target_index = 0;  // element in the target's flat range
  std::int64_t count = 0;
};

/// Returns true if the slices share an element. Takes O(dims) time for any number of shared
/// elements.
bool meet(const std::vector<std::int64_t>& shape, const Slice& a, const Slice& b);

/// Returns all sequences of elements that both `source` and `target` contain, ordered by
/// target_index.
std::vector<SliceRun> intersect(const std::vector<std::int64_t>& shape, const Slice& source,
                                const Slice& target);

}  // namespace trireme::parallel
