#include "checkpoint/upkeep/slice_sums.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/hash/crc32c.hpp"

namespace trireme {
namespace {

bool has_checksum(const SavedSlice& slice) {
  return slice.hash.size() == kChecksumDigits;
}

}  // namespace

SliceSums::SliceSums(const CheckpointManifest& manifest, std::uint64_t shard) {
  for (const auto& [name, tensor] : manifest.tensors) {
    for (const SavedSlice& slice : tensor.slices) {
      const std::uint64_t bytes =
          static_cast<std::uint64_t>(slice.part.count()) * size_of(tensor.dtype);
      if (slice.shard == shard && bytes > 0)
        parts_.push_back({slice.at, slice.at + bytes, &name, &slice, ""});
    }
  }
  std::sort(parts_.begin(), parts_.end(), [](const Part& a, const Part& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  for (std::size_t i = 1; i < parts_.size() && overlap_.empty(); ++i) {
    if (parts_[i].begin < parts_[i - 1].end)
      overlap_ = formatted("{} and {} share bytes", *parts_[i - 1].tensor, *parts_[i].tensor);
  }
  if (!overlap_.empty()) parts_.clear();
}

void SliceSums::update(std::span<const std::byte> bytes) {
  const std::uint64_t end = at_ + bytes.size();
  for (; current_ < parts_.size() && parts_[current_].begin < end; ++current_) {
    const Part& part = parts_[current_];
    const std::uint64_t from = std::max(at_, part.begin);
    const std::uint64_t to = std::min(end, part.end);
    const auto mine =
        bytes.subspan(static_cast<std::size_t>(from - at_), static_cast<std::size_t>(to - from));
    if (has_checksum(*part.slice)) {
      checksum_ = crc32c(mine, checksum_);
    } else {
      hasher_.update(mine);
    }
    if (part.end > end) break;
    finish_part();
  }
  at_ = end;
}

void SliceSums::finish_part() {
  Part& part = parts_[current_];
  if (has_checksum(*part.slice)) {
    part.sum = crc32c_hex(checksum_);
    checksum_ = 0;
  } else {
    part.sum = hasher_.hex();
    hasher_ = Hasher();
  }
}

std::string SliceSums::problem() const {
  if (!overlap_.empty()) return overlap_;
  for (const Part& part : parts_) {
    if (part.sum == part.slice->hash) continue;
    return formatted("a slice of tensor {} at byte {} has the checksum {}, the manifest says {}",
                     *part.tensor, part.begin, part.sum, part.slice->hash);
  }
  return "";
}

}  // namespace trireme
