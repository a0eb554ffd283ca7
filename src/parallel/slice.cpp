#include "parallel/slice.hpp"

#include <algorithm>
#include <cstddef>

#include "core/error.hpp"

namespace trireme::parallel {
namespace {

std::int64_t product(const std::vector<std::int64_t>& sizes) {
  std::int64_t result = 1;
  for (const std::int64_t size : sizes) result *= size;
  return result;
}

/// The intersection of two slices as rows that are contiguous in both, in row-major order.
struct CommonRows {
  std::vector<std::int64_t> counts;  // per outer dim
  std::vector<std::int64_t>
      source_strides;  // source strides of the outer dims, in elements of its rectangle
  std::vector<std::int64_t> target_strides;
  std::int64_t source_origin = 0;
  std::int64_t target_origin = 0;
  std::int64_t length = 1;  // elements of one row
  std::int64_t num_rows = 1;

  /// Returns the index of the first element of row `row` in a rectangle of these strides. It
  /// increases with `row`, because both rectangles are row-major.
  [[nodiscard]] std::int64_t begin(std::int64_t row, const std::vector<std::int64_t>& strides,
                                   std::int64_t origin) const {
    for (std::size_t dim = counts.size(); dim-- > 0;) {
      origin += row % counts[dim] * strides[dim];
      row /= counts[dim];
    }
    return origin;
  }

  /// Returns the first row that ends after element `index`.
  [[nodiscard]] std::int64_t first_beyond(std::int64_t index,
                                          const std::vector<std::int64_t>& strides,
                                          std::int64_t origin) const {
    std::int64_t low = 0;
    std::int64_t high = num_rows;
    while (low < high) {
      const std::int64_t middle = low + (high - low) / 2;
      if (begin(middle, strides, origin) + length > index) {
        high = middle;
      } else {
        low = middle + 1;
      }
    }
    return low;
  }
};

CommonRows common_rows(const Slice& source, const Slice& target) {
  CommonRows rows;
  std::int64_t source_stride = 1;
  std::int64_t target_stride = 1;
  bool contiguous = true;  // both slices cover all inner dims so far completely
  for (std::size_t dim = source.extent.size(); dim-- > 0;) {
    const std::int64_t begin = std::max(source.offset[dim], target.offset[dim]);
    const std::int64_t end =
        std::min(source.offset[dim] + source.extent[dim], target.offset[dim] + target.extent[dim]);
    const std::int64_t count = std::max<std::int64_t>(0, end - begin);
    rows.source_origin += (begin - source.offset[dim]) * source_stride;
    rows.target_origin += (begin - target.offset[dim]) * target_stride;
    if (contiguous) {
      rows.length *= count;
    } else {
      rows.counts.insert(rows.counts.begin(), count);
      rows.source_strides.insert(rows.source_strides.begin(), source_stride);
      rows.target_strides.insert(rows.target_strides.begin(), target_stride);
      rows.num_rows *= count;
    }
    contiguous = contiguous && count == source.extent[dim] && count == target.extent[dim];
    source_stride *= source.extent[dim];
    target_stride *= target.extent[dim];
  }
  if (rows.length == 0) rows.num_rows = 0;
  return rows;
}

void check(const std::vector<std::int64_t>& shape, const Slice& slice) {
  TRIREME_ASSERT(slice.offset.size() == shape.size() && slice.extent.size() == shape.size());
  for (std::size_t dim = 0; dim < shape.size(); ++dim)
    TRIREME_ASSERT(slice.offset[dim] >= 0 && slice.extent[dim] >= 0 &&
                   slice.offset[dim] + slice.extent[dim] <= shape[dim]);
  TRIREME_ASSERT(0 <= slice.flat_begin && slice.flat_begin <= slice.flat_end &&
                 slice.flat_end <= slice.rectangle_count());
}

void append(std::vector<SliceRun>& runs, const SliceRun& run) {
  if (!runs.empty()) {
    SliceRun& last = runs.back();
    const bool follows = last.source_index + last.count == run.source_index &&
                         last.target_index + last.count == run.target_index;
    if (follows) {
      last.count += run.count;
      return;
    }
  }
  runs.push_back(run);
}

/// Calls `use` for every row in which both slices have elements, in order, until it returns false.
/// Rows with elements of only one slice lie before the first or after the last common row. The loop
/// starts near the first common row, so it skips few rows.
template <class Use>
void for_common_rows(const std::vector<std::int64_t>& shape, const Slice& source,
                     const Slice& target, Use&& use) {
  check(shape, source);
  check(shape, target);
  const CommonRows rows = common_rows(source, target);
  if (rows.num_rows == 0 || source.count() == 0 || target.count() == 0) return;
  const std::int64_t first =
      std::max(rows.first_beyond(source.flat_begin, rows.source_strides, rows.source_origin),
               rows.first_beyond(target.flat_begin, rows.target_strides, rows.target_origin));
  for (std::int64_t row = first; row < rows.num_rows; ++row) {
    const std::int64_t source_begin = rows.begin(row, rows.source_strides, rows.source_origin);
    const std::int64_t target_begin = rows.begin(row, rows.target_strides, rows.target_origin);
    if (source_begin >= source.flat_end || target_begin >= target.flat_end) return;
    const std::int64_t begin = std::max(
        {std::int64_t{0}, source.flat_begin - source_begin, target.flat_begin - target_begin});
    const std::int64_t end =
        std::min({rows.length, source.flat_end - source_begin, target.flat_end - target_begin});
    if (begin >= end) continue;
    const SliceRun run{source_begin + begin - source.flat_begin,
                       target_begin + begin - target.flat_begin, end - begin};
    if (!use(run)) return;
  }
}

}  // namespace

Slice Slice::whole(const std::vector<std::int64_t>& shape) {
  return {std::vector<std::int64_t>(shape.size(), 0), shape, 0, product(shape)};
}

std::int64_t Slice::rectangle_count() const noexcept {
  return product(extent);
}

bool meet(const std::vector<std::int64_t>& shape, const Slice& a, const Slice& b) {
  bool found = false;
  for_common_rows(shape, a, b, [&](const SliceRun&) {
    found = true;
    return false;
  });
  return found;
}

std::vector<SliceRun> intersect(const std::vector<std::int64_t>& shape, const Slice& source,
                                const Slice& target) {
  std::vector<SliceRun> runs;
  for_common_rows(shape, source, target, [&](const SliceRun& run) {
    append(runs, run);
    return true;
  });
  return runs;
}

}  // namespace trireme::parallel
