#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.hpp"

namespace trireme {

/// Where to put a part of a logical tensor. bytes.size() = part.count() * size_of(dtype).
struct ReadTarget {
  Slice part;
  std::span<std::byte> bytes;
};

/// One saved slice and who wants some of it. Pointers live until read_slices returns.
struct SliceJob {
  const std::string* name = nullptr;
  const SavedTensor* tensor = nullptr;
  const SavedSlice* slice = nullptr;
  std::vector<ReadTarget> targets;  // must not overlap
};

/// Reads each slice that some target meets, whole, checks it, and copies what the targets need; the
/// others are not read. Several threads read, check and copy at once, whatever the slices' sizes:
/// small neighbours in one read, large ones in pieces. Memory beyond the targets: 5 MiB a thread.
/// Throws Error(data) if a file is absent, short, not of the recorded size, or a checksum differs;
/// the content of the targets is undefined then.
void read_slices(const std::filesystem::path& folder, const CheckpointManifest& manifest,
                 std::vector<SliceJob> jobs);

}  // namespace trireme
