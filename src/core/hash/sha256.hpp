#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// SHA-256 (FIPS 180-4) of a byte stream, by libcrypto, for hashes that people compare and publish
/// (`checkpoint hash`). Checks during reading use faster checksums.
class Sha256 {
 public:
  /// Throws Error(internal) if libcrypto has no SHA-256.
  Sha256();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);

  /// Returns 64 lower-case hexadecimal digits; may be called at any time.
  [[nodiscard]] std::string hex() const;

 private:
  struct Close {
    void operator()(void* context) const noexcept;
  };

  std::unique_ptr<void, Close> context_;  // EVP_MD_CTX
};

}  // namespace trireme
