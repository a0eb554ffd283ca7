#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/format/manifest.hpp"
#include "core/hash/xxh3.hpp"

namespace trireme {

/// Checks the slices of one shard while its bytes pass by in order: a manifest may be whole and the
/// file as it says, and a slice still not be where it says.
class SliceSums {
 public:
  /// `shard`: index into manifest.shards, which outlives this.
  SliceSums(const CheckpointManifest& manifest, std::uint64_t shard);

  /// The file's next bytes.
  void update(std::span<const std::byte> bytes);

  /// After all bytes: the first slice whose sum differs or that shares bytes with another; "" if
  /// there is none.
  [[nodiscard]] std::string problem() const;

 private:
  struct Part {
    std::uint64_t begin = 0;  // bytes of the file
    std::uint64_t end = 0;
    const std::string* tensor = nullptr;
    const SavedSlice* slice = nullptr;
    std::string sum;  // as in the manifest, once all bytes were seen
  };

  void finish_part();

  std::vector<Part> parts_;  // by begin
  std::string overlap_;
  std::size_t current_ = 0;  // the part whose bytes come next
  std::uint64_t at_ = 0;     // of the file
  std::uint32_t checksum_ = 0;
  Hasher hasher_;
};

}  // namespace trireme
