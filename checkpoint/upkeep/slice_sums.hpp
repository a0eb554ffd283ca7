#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.hpp"
#include "core/hash/xxh3.hpp"

namespace trireme {

/// Checks the slices of one shard while its bytes are read in order. This finds slices at wrong
/// positions even if the hashes of manifest and file are correct.
class SliceSums {
 public:
  /// `shard`: index into manifest.shards. The manifest must outlive this object.
  SliceSums(const CheckpointManifest& manifest, std::uint64_t shard);

  /// Processes the next bytes of the file.
  void update(std::span<const std::byte> bytes);

  /// Returns the first slice whose checksum differs or that overlaps another; "" if there is none.
  /// Call it after all bytes.
  [[nodiscard]] std::string problem() const;

 private:
  struct Part {
    std::uint64_t begin = 0;  // byte position in the file
    std::uint64_t end = 0;
    const std::string* tensor = nullptr;
    const SavedSlice* slice = nullptr;
    std::string sum;  // checksum; set when all bytes were seen
  };

  void finish_part();

  std::vector<Part> parts_;  // sorted by begin
  std::string overlap_;
  std::size_t current_ = 0;  // the part that contains the next byte
  std::uint64_t at_ = 0;     // byte position in the file
  std::uint32_t checksum_ = 0;
  Hasher hasher_;
};

}  // namespace trireme
