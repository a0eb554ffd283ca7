#pragma once
#include <cstddef>
#include <filesystem>
#include <span>
#include <vector>

#include "checkpoint/manifest.hpp"
#include "core/file.hpp"

namespace trireme {

/// Where to put a part of a logical tensor. bytes.size() = part.count() * size_of(dtype).
struct ReadTarget {
  Shard part;
  std::span<std::byte> bytes;
};

/// Reads slices of one checkpoint in the order asked for and keeps the last shard file open.
class SliceReader {
 public:
  SliceReader(std::filesystem::path folder, const CheckpointManifest& manifest);

  /// Reads the whole slice, hashes it, and copies what each target needs. Nothing is read if no
  /// target needs any. Throws Error(data) if the file is absent, short, not the recorded size, or
  /// the hash differs.
  void read(const std::string& name,
            const SavedTensor& tensor,
            const SavedSlice& slice,
            std::span<const ReadTarget> targets);

 private:
  void open_shard(std::uint64_t index);

  std::filesystem::path folder_;
  const CheckpointManifest* manifest_;
  std::vector<std::byte> piece_;
  Fd fd_;
  std::uint64_t open_index_ = ~std::uint64_t{0};
  std::filesystem::path open_path_;
};

/// Opens a regular file without following a symbolic link and checks its size. Throws Error(data).
Fd open_recorded(const std::filesystem::path& folder, const SavedFile& file);

}  // namespace trireme
