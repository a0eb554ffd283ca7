#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/files/file.hpp"
#include "data_prep/input/compression.hpp"
#include "data_prep/input/inputs.hpp"

namespace trireme {

/// The bytes of one input as its lines see them: decompressed. One thread at a time.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  ByteSource() = default;
  ByteSource(const ByteSource&) = delete;
  ByteSource& operator=(const ByteSource&) = delete;
  ByteSource(ByteSource&&) = delete;
  ByteSource& operator=(ByteSource&&) = delete;

  /// Exactly bytes.size() bytes from `offset` on. Throws Error(data) if the input ends before.
  virtual void read(std::uint64_t offset, std::span<std::byte> bytes) = 0;
};

/// An input as it is, by pread.
class FileSource final : public ByteSource {
 public:
  explicit FileSource(const InputFile& file) : file_(file), fd_(open_read(file.path)) {}

  void read(std::uint64_t offset, std::span<std::byte> bytes) override {
    read_all(fd_.get(), bytes, offset, file_.path);
  }

 private:
  const InputFile& file_;
  Fd fd_;
};

/// A compressed input. Meant for reading forward: bytes from forget_before() on stay in memory and
/// may be read again; anything before them starts anew at the nearest access point.
class CompressedSource final : public ByteSource {
 public:
  explicit CompressedSource(const InputFile& file) : file_(file), fd_(open_read(file.path)) {}

  void read(std::uint64_t offset, std::span<std::byte> bytes) override;

  /// Bytes before `offset` will not be asked for.
  void forget_before(std::uint64_t offset);

  /// How often decoding began at an access point so far: what reading costs.
  [[nodiscard]] std::uint64_t num_starts() const noexcept { return num_starts_; }

 private:
  void start_near(std::uint64_t offset);
  void skip_to(std::uint64_t offset);
  void load_until(std::uint64_t end);
  [[noreturn]] void fail_short() const;

  const InputFile& file_;
  Fd fd_;
  std::optional<Decompressor> decoder_;
  std::vector<std::byte> kept_;
  std::uint64_t kept_begin_ = 0;  // offset of kept_[0]; kept_ ends where decoder_ stands
  std::uint64_t num_starts_ = 0;
};

}  // namespace trireme
