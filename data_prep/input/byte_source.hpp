#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/files/file.hpp"
#include "data_prep/input/input_format.hpp"

namespace trireme::data_prep {

/// The decompressed bytes of one input. Not thread-safe.
///
/// Compressed inputs are meant to be read forward: bytes after the position of forget_before() stay
/// in memory and may be read again; reading earlier bytes restarts at the nearest access point.
class ByteSource {
 public:
  explicit ByteSource(const InputFile& file) : file_(file), fd_(open_read(file.path)) {}

  /// Reads exactly bytes.size() bytes at `offset`. Throws Error(data) if the input ends earlier.
  void read(std::uint64_t offset, std::span<std::byte> bytes);

  /// Drops bytes before `offset`: the caller will not read them again.
  void forget_before(std::uint64_t offset);

  /// Returns how often decoding has begun at an access point; each time costs decompression.
  [[nodiscard]] std::uint64_t num_starts() const noexcept { return num_starts_; }

 private:
  void start_near(std::uint64_t offset);
  void skip_to(std::uint64_t offset);
  void load_until(std::uint64_t end);
  [[noreturn]] void fail_short() const;

  const InputFile& file_;
  Fd fd_;
  std::optional<Decompressor> decoder_;  // set for a compressed input
  std::vector<std::byte> kept_;
  std::uint64_t kept_begin_ = 0;  // offset of kept_[0]; kept_ ends at the position of decoder_
  std::uint64_t num_starts_ = 0;
};

/// Returns the first character of the stream after a byte-order mark and white space.
std::optional<char> first_character(const InputFile& file);

/// Returns "FILE, line 3, byte 120" if positions are bytes, otherwise record_location(). Reads the
/// input up to the position.
std::string line_location(const InputFile& file, std::uint64_t position);

}  // namespace trireme::data_prep
