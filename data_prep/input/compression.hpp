#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/files/file.hpp"

namespace trireme::data_prep {

/// The compression of an input.
enum class Compression { none, gzip, zstd };

/// Returns "none", "gzip" or "zstd".
std::string_view name_of(Compression compression);

/// Returns true if a file that begins with `head` is a gzip file or a zstd file.
bool is_gzip(std::string_view head);
bool is_zstd(std::string_view head);

/// A position in a compressed file where reading can begin: the start of a gzip member or a zstd
/// frame.
struct AccessPoint {
  std::uint64_t offset = 0;  // bytes of the decompressed stream before it
  std::uint64_t packed = 0;  // bytes of the file before it
};

/// Returns the last of the ascending `points` at or before stream position `offset`; without one,
/// the start.
AccessPoint nearest_point(const std::vector<AccessPoint>& points, std::uint64_t offset);

/// Decompresses a file from an access point on, in order, as one stream over all gzip members or
/// zstd frames. Needs a buffer of 256 KiB and the memory of the format (gzip 32 KiB; zstd its
/// window, refused over 128 MiB). Throws Error(data) naming path and byte for damage, a truncated
/// file and foreign bytes, Error(resource) if memory is refused.
class Decompressor {
 public:
  /// `fd` is the open file and must outlive this object; `packed_size` is its size in bytes.
  Decompressor(int fd, std::filesystem::path path, std::uint64_t packed_size,
               Compression compression, const AccessPoint& start);
  Decompressor(Decompressor&&) noexcept;
  Decompressor& operator=(Decompressor&&) noexcept;
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  ~Decompressor();

  /// Fills `out`; returns fewer bytes only at the end of the stream.
  std::size_t read(std::span<std::byte> out);

  /// Returns the number of decompressed bytes before the next read.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

  /// Returns the starts of members or frames so far that are at least kPointSpacing apart,
  /// including the first one.
  [[nodiscard]] const std::vector<AccessPoint>& points() const noexcept { return points_; }

  static constexpr std::uint64_t kPointSpacing = 4 << 20;

 private:
  class Codec;
  class GzipCodec;
  class ZstdCodec;

  bool refill();
  bool begin_part();

  [[nodiscard]] std::uint64_t packed_at() const noexcept { return loaded_ - input_.size(); }

  [[noreturn]] void fail_at(std::string_view what) const;

  int fd_;
  std::filesystem::path path_;
  std::uint64_t packed_size_;
  Compression compression_;
  std::unique_ptr<Codec> codec_;
  std::vector<std::byte> buffer_;
  std::span<const std::byte> input_;  // the part of buffer_ that is not yet decoded
  std::uint64_t loaded_;              // bytes of the file up to the end of input_
  std::uint64_t offset_;
  bool in_part_ = false;  // inside a member or frame
  std::vector<AccessPoint> points_;
};

}  // namespace trireme::data_prep
