#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "checkpoint/disk/aligned_buffer.hpp"
#include "checkpoint/load/load.hpp"

namespace trireme::checkpoint {

/// Reads the elements of a logical tensor in row-major order, in windows of 64 MiB, for any slices.
/// Does not check checksums, because a window may be a small part of a large slice: the checkpoint
/// must have been verified before.
class LogicalReader {
 public:
  static constexpr std::int64_t kWindowBytes = std::int64_t{64} << 20;

  /// `checkpoint` and `tensor` must outlive the reader.
  LogicalReader(const Checkpoint& checkpoint, const SavedTensor& tensor)
      : checkpoint_(&checkpoint), tensor_(&tensor) {}

  /// Returns the next window, valid until the next call; empty at the end. Throws like
  /// DiskReader::read.
  std::span<const std::byte> next();

 private:
  void read(const parallel::Slice& window);

  const Checkpoint* checkpoint_;
  const SavedTensor* tensor_;
  std::int64_t begin_ = 0;
  std::vector<std::byte> window_;
  AlignedBuffer buffer_;
};

}  // namespace trireme::checkpoint
