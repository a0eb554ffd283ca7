#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/files/file.hpp"

namespace trireme {

/// How the bytes of an input are stored.
enum class Compression { none, gzip, zstd };

/// "none", "gzip" or "zstd".
std::string_view name_of(Compression compression);

/// Returns true if a file with the first bytes `head` is one of gzip or of zstd.
bool is_gzip(std::string_view head);
bool is_zstd(std::string_view head);

/// A place of a compressed file where reading can begin: the start of a gzip
/// member or a zstd frame.
struct AccessPoint {
  std::uint64_t offset = 0;  // bytes of the decompressed stream before it
  std::uint64_t packed = 0;  // bytes of the file before it
};

/// The last of the ascending `points` at or before `offset` of the stream; without one, the start.
AccessPoint nearest_point(const std::vector<AccessPoint>& points, std::uint64_t offset);

/// The decompressed bytes of a file, from an access point on, in order. Members of a gzip file and
/// frames of a zstd file follow one another without a mark. Memory: a buffer of 256 KiB, and what
/// the format asks for (gzip 32 KiB; zstd its window, refused over 128 MiB). Throws Error(data)
/// naming path and byte of the file for damage, a cut end and foreign bytes, Error(resource) when
/// memory is refused.
class Decompressor {
 public:
  /// `fd` is the file and must outlive this; `packed_size` its bytes.
  Decompressor(int fd, std::filesystem::path path, std::uint64_t packed_size,
               Compression compression, const AccessPoint& start);
  Decompressor(Decompressor&&) noexcept;
  Decompressor& operator=(Decompressor&&) noexcept;
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;
  ~Decompressor();

  /// Fills `out` as far as the stream goes; fewer bytes only at its end.
  std::size_t read(std::span<std::byte> out);

  /// Bytes of the decompressed stream before the next read.
  [[nodiscard]] std::uint64_t offset() const noexcept { return offset_; }

  /// Members or frames begun so far that lie at least kPointSpacing apart, the first one included.
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
  std::span<const std::byte> input_;  // of buffer_, not yet decoded
  std::uint64_t loaded_;              // bytes of the file up to the end of input_
  std::uint64_t offset_;
  bool in_part_ = false;  // inside a member or frame
  std::vector<AccessPoint> points_;
};

}  // namespace trireme
