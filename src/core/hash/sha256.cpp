#include "core/hash/sha256.hpp"

#include <openssl/evp.h>

#include <array>

#include "core/error.hpp"
#include "core/hash/hex.hpp"

namespace trireme {
namespace {

EVP_MD_CTX* raw(void* context) noexcept {
  return static_cast<EVP_MD_CTX*>(context);
}

void check(int result, const char* call) {
  if (result != 1) fail(ErrorKind::internal, "libcrypto: {} failed", call);
}

}  // namespace

void Sha256::Close::operator()(void* context) const noexcept {
  EVP_MD_CTX_free(raw(context));
}

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
  check(context_ != nullptr ? EVP_DigestInit_ex(raw(context_.get()), EVP_sha256(), nullptr) : 0,
        "EVP_DigestInit_ex");
}

void Sha256::update(std::span<const std::byte> bytes) {
  check(EVP_DigestUpdate(raw(context_.get()), bytes.data(), bytes.size()), "EVP_DigestUpdate");
}

void Sha256::update(std::string_view text) {
  update(std::as_bytes(std::span(text)));
}

std::string Sha256::hex() const {
  const Sha256 copy;  // finalizing a copy keeps this stream open
  check(EVP_MD_CTX_copy_ex(raw(copy.context_.get()), raw(context_.get())), "EVP_MD_CTX_copy_ex");
  std::array<unsigned char, 32> digest{};
  check(EVP_DigestFinal_ex(raw(copy.context_.get()), digest.data(), nullptr), "EVP_DigestFinal_ex");
  std::string text;
  for (const unsigned char byte : digest) text += hex_text(byte);
  return text;
}

}  // namespace trireme
