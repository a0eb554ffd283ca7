#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.hpp"

namespace trireme::checkpoint {

/// The destination of a part of a logical tensor. bytes.size() = part.count() * size_of(dtype).
struct ReadTarget {
  parallel::Slice part;
  std::span<std::byte> bytes;
};

/// One saved slice and its destinations. The pointers must stay valid until read_slices returns.
struct SliceJob {
  const std::string* name = nullptr;
  const SavedTensor* tensor = nullptr;
  const SavedSlice* slice = nullptr;
  std::vector<ReadTarget> targets;  // must not overlap
};

/// Reads each slice that overlaps a target whole, checks it, and copies the requested parts.
/// Several threads read, check and copy at once: small neighboring slices in one read, large slices
/// in blocks. Needs 5 MiB per thread besides the targets. Throws Error(data) if a file is missing
/// or has another size than recorded, or if a checksum differs; then the content of the targets is
/// undefined.
void read_slices(const std::filesystem::path& directory, const CheckpointManifest& manifest,
                 std::vector<SliceJob> jobs);

}  // namespace trireme::checkpoint
