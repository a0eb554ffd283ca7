#include "checkpoint/load/logical_reader.hpp"

#include <algorithm>

#include "checkpoint/disk/disk_reader.hpp"

namespace trireme::checkpoint {

std::span<const std::byte> LogicalReader::next() {
  parallel::Slice window = parallel::Slice::whole(tensor_->shape);
  if (begin_ == window.rectangle_count()) return {};
  const auto element = static_cast<std::int64_t>(size_of(tensor_->dtype));
  window.flat_begin = begin_;
  window.flat_end = std::min(window.rectangle_count(), begin_ + kWindowBytes / element);
  window_.resize(static_cast<std::size_t>(window.count() * element));
  read(window);
  begin_ = window.flat_end;
  return window_;
}

void LogicalReader::read(const parallel::Slice& window) {
  const std::size_t element = size_of(tensor_->dtype);
  for (const SavedSlice& slice : tensor_->slices) {
    const std::vector<parallel::SliceRun> runs =
        parallel::intersect(tensor_->shape, slice.part, window);
    if (runs.empty()) continue;
    // One read covers all runs. The bytes between them belong to the neighboring windows, so they
    // are few.
    const std::int64_t first = runs.front().source_index;
    const std::int64_t last = runs.back().source_index + runs.back().count;
    const DiskReader reader(checkpoint_->path(), checkpoint_->manifest().shards[slice.shard]);
    const auto span = reader.read(slice.at + static_cast<std::uint64_t>(first) * element,
                                  static_cast<std::size_t>(last - first) * element, buffer_);
    for (const parallel::SliceRun& run : runs) {
      std::copy_n(span.data() + static_cast<std::size_t>(run.source_index - first) * element,
                  static_cast<std::size_t>(run.count) * element,
                  window_.data() + static_cast<std::size_t>(run.target_index) * element);
    }
  }
}

}  // namespace trireme::checkpoint
