#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// SHA-256 of a stream of bytes, for names of content that people compare and publish
/// (`checkpoint hash`). Everything that is checked while it is read uses faster sums.
/// Uses the processor's instructions where they exist (about 1.5 GB/s), else plain code.
/// Source: FIPS 180-4, sections 4.1.2, 4.2.2, 5.3.3 and 6.2.
class Sha256 {
 public:
  enum class Path { fastest, portable };

  explicit Sha256(Path path = Path::fastest);

  void update(std::span<const std::byte> bytes) noexcept;
  void update(std::string_view text) noexcept;

  /// 64 lower-case hexadecimal digits. May be asked for at any time.
  [[nodiscard]] std::string hex() const;

 private:
  using Words = std::array<std::uint32_t, 8>;
  using Compress = void (*)(Words& state, const std::byte* blocks, std::size_t count) noexcept;

  static void compress_portable(Words& state, const std::byte* blocks, std::size_t count) noexcept;
  static void compress_x86(Words& state, const std::byte* blocks, std::size_t count) noexcept;

  Compress compress_;
  Words state_;
  std::array<std::byte, 64> pending_{};
  std::uint64_t size_ = 0;  // bytes so far
};

}  // namespace trireme
