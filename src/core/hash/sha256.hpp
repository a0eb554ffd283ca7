#pragma once
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace trireme {

/// SHA-256 (FIPS 180-4) of a stream of bytes, by libcrypto: names of content that people compare
/// and publish (`checkpoint hash`). Everything that is checked while it is read uses faster sums.
class Sha256 {
 public:
  /// Throws Error(internal) where libcrypto has no SHA-256.
  Sha256();

  void update(std::span<const std::byte> bytes);
  void update(std::string_view text);

  /// 64 lower-case hexadecimal digits. May be asked for at any time.
  [[nodiscard]] std::string hex() const;

 private:
  struct Close {
    void operator()(void* context) const noexcept;
  };

  std::unique_ptr<void, Close> context_;  // EVP_MD_CTX
};

}  // namespace trireme
