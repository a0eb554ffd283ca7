#include "core/hash/xxh3.hpp"

#include <xxhash.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/refusal.hpp"
#include "core/hash/hex.hpp"

namespace trireme {

struct Hasher::State {
  XXH3_state_t* raw = XXH3_createState();

  State() { XXH3_128bits_reset(raw); }

  State(const State&) = delete;
  State& operator=(const State&) = delete;

  ~State() { XXH3_freeState(raw); }
};

std::uint64_t xxh3_64(std::span<const std::byte> bytes) noexcept {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t xxh3_64(std::string_view text) noexcept {
  return XXH3_64bits(text.data(), text.size());
}

Hasher::Hasher() : state_(std::make_unique<State>()) {}

Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::update(std::span<const std::byte> bytes) noexcept {
  XXH3_128bits_update(state_->raw, bytes.data(), bytes.size());
}

void Hasher::update(std::string_view text) noexcept {
  update(std::as_bytes(std::span(text)));
}

std::string Hasher::hex() const {
  const XXH128_hash_t value = XXH3_128bits_digest(state_->raw);
  return hex_text(std::uint64_t{value.high64}) + hex_text(std::uint64_t{value.low64});
}

std::string xxh3_128_hex(std::string_view text) {
  Hasher hasher;
  hasher.update(text);
  return hasher.hex();
}

std::string hash_file(const std::filesystem::path& path) {
  const Fd fd = open_read(path);
  std::error_code code;
  const std::uint64_t size = std::filesystem::file_size(path, code);
  if (code) fail_to_read("hash", path, code.value());
  std::vector<std::byte> buffer(std::size_t{4} << 20);
  Hasher hasher;
  for (std::uint64_t offset = 0; offset < size; offset += buffer.size()) {
    const auto chunk =
        std::span(buffer).first(std::min<std::uint64_t>(buffer.size(), size - offset));
    read_all(fd.get(), chunk, offset, path);
    hasher.update(chunk);
  }
  return hasher.hex();
}

}  // namespace trireme
