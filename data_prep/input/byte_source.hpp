#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/files/file.hpp"
#include "data_prep/input/compression.hpp"
#include "data_prep/input/input_format.hpp"

namespace trireme {

/// The bytes of one input as its lines see them: decompressed. One thread at a time.
///
/// A compressed input is meant for reading forward: bytes from forget_before() on stay in memory and
/// may be read again; anything before them starts anew at the nearest access point.
class ByteSource {
 public:
  explicit ByteSource(const InputFile& file) : file_(file), fd_(open_read(file.path)) {}

  /// Reads exactly bytes.size() bytes from `offset` on. Throws Error(data) if the input ends before.
  void read(std::uint64_t offset, std::span<std::byte> bytes);

  /// Bytes before `offset` will not be asked for.
  void forget_before(std::uint64_t offset);

  /// Returns how often decoding began at an access point so far: what reading costs.
  [[nodiscard]] std::uint64_t num_starts() const noexcept { return num_starts_; }

 private:
  void start_near(std::uint64_t offset);
  void skip_to(std::uint64_t offset);
  void load_until(std::uint64_t end);
  [[noreturn]] void fail_short() const;

  const InputFile& file_;
  Fd fd_;
  std::optional<Decompressor> decoder_;  // of a compressed input
  std::vector<std::byte> kept_;
  std::uint64_t kept_begin_ = 0;  // offset of kept_[0]; kept_ ends where decoder_ stands
  std::uint64_t num_starts_ = 0;
};

}  // namespace trireme
