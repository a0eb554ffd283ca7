#include "data/shards/frame.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"

namespace trireme::data {
namespace {

constexpr std::string_view kMagic = "TRIREME1";
constexpr std::size_t kHashBegin = 32;
constexpr std::size_t kSelfBegin = 64;

using Footer = std::array<std::byte, kFooterBytes>;

void put_u64(Footer& footer, std::size_t at, std::uint64_t value) {
  for (std::size_t i = 0; i < 8; ++i) footer[at + i] = static_cast<std::byte>(value >> (8 * i));
}

std::uint64_t get_u64(const Footer& footer, std::size_t at) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < 8; ++i)
    value |= std::to_integer<std::uint64_t>(footer[at + i]) << (8 * i);
  return value;
}

std::uint64_t self_hash(const Footer& footer) {
  return xxh3_64(std::span(footer).first(kSelfBegin));
}

void hash_range(int fd, std::uint64_t begin, std::uint64_t end, Hasher& hasher,
                const std::filesystem::path& path) {
  std::vector<std::byte> buffer(std::min<std::uint64_t>(end - begin, std::uint64_t{1} << 20));
  while (begin < end) {
    const std::span part(buffer.data(), std::min<std::uint64_t>(buffer.size(), end - begin));
    read_all(fd, part, begin, path);
    hasher.update(part);
    begin += part.size();
  }
}

}  // namespace

std::string hash_frame(int fd, const Frame& frame, const std::filesystem::path& path) {
  Hasher hasher;
  hash_range(fd, 0, frame.tokens_offset, hasher, path);
  hash_range(fd, frame.tokens_offset + frame.tokens_bytes, frame.hdf5_bytes, hasher, path);
  return hasher.hex();
}

void write_footer(int fd, const Frame& frame, const std::filesystem::path& path) {
  TRIREME_ASSERT(frame.xxh3.size() == kSelfBegin - kHashBegin);
  Footer footer{};
  std::memcpy(footer.data(), kMagic.data(), kMagic.size());
  put_u64(footer, 8, frame.tokens_offset);
  put_u64(footer, 16, frame.tokens_bytes);
  put_u64(footer, 24, frame.hdf5_bytes);
  std::memcpy(footer.data() + kHashBegin, frame.xxh3.data(), frame.xxh3.size());
  put_u64(footer, kSelfBegin, self_hash(footer));
  write_all(fd, footer, frame.hdf5_bytes, path);
}

Frame check_frame(int fd, std::uint64_t file_bytes, const std::filesystem::path& path) {
  if (file_bytes < kFooterBytes) {
    fail(ErrorKind::data, "{}: {} bytes are too few for a shard: truncated, or not made by pack",
         path.string(), file_bytes);
  }
  const std::uint64_t begin = file_bytes - kFooterBytes;
  Footer footer{};
  read_all(fd, footer, begin, path);
  if (std::memcmp(footer.data(), kMagic.data(), kMagic.size()) != 0 ||
      get_u64(footer, kSelfBegin) != self_hash(footer)) {
    fail(ErrorKind::data,
         "{}: footer (bytes {}..{}) is damaged: the file is truncated, or was not made by pack",
         path.string(), begin, file_bytes);
  }
  Frame frame{get_u64(footer, 8),
              get_u64(footer, 16),
              get_u64(footer, 24),
              {reinterpret_cast<const char*>(footer.data()) + kHashBegin, kSelfBegin - kHashBegin}};
  const bool fits = frame.hdf5_bytes == begin && frame.tokens_offset <= begin &&
                    frame.tokens_bytes <= begin - frame.tokens_offset;
  if (!fits) {
    fail(ErrorKind::data, "{}: {} bytes before the footer, expected {}: bytes were lost or added",
         path.string(), begin, frame.hdf5_bytes);
  }
  if (hash_frame(fd, frame, path) != frame.xxh3) {
    fail(ErrorKind::data,
         "{}: damaged outside the tokens: header and tables in bytes 0..{} or {}..{}",
         path.string(), frame.tokens_offset, frame.tokens_offset + frame.tokens_bytes, begin);
  }
  return frame;
}

}  // namespace trireme::data
