#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

/// XXH3, the checksum of files, slices and logical tensors. It finds damage, not forgery.
namespace trireme {

std::uint64_t xxh3_64(std::span<const std::byte> bytes) noexcept;
std::uint64_t xxh3_64(std::string_view text) noexcept;

/// A 128-bit streaming hash. hex() returns 32 lower-case digits and may be called at any time.
class Hasher {
 public:
  Hasher();
  Hasher(Hasher&&) noexcept;
  Hasher& operator=(Hasher&&) noexcept;
  Hasher(const Hasher&) = delete;
  Hasher& operator=(const Hasher&) = delete;
  ~Hasher();

  void update(std::span<const std::byte> bytes) noexcept;
  void update(std::string_view text) noexcept;
  [[nodiscard]] std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string xxh3_128_hex(std::string_view text);

/// Returns the hash of a whole file. Throws like read_file().
std::string hash_file(const std::filesystem::path& path);

}  // namespace trireme
