#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "core/hash/crc32c.hpp"
#include "core/hash/sha256.hpp"

namespace trireme {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::vector<std::byte> random_bytes(std::size_t size, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random() & 255U);
  return bytes;
}

/// RFC 3720, appendix B.4, and the check value of the CRC catalogue.
TEST(Crc32c, EqualsPublishedValues) {
  std::string rising;
  std::string falling;
  for (int i = 0; i < 32; ++i) {
    rising += static_cast<char>(i);
    falling += static_cast<char>(31 - i);
  }
  const std::pair<std::string, std::uint32_t> vectors[] = {{"", 0},
                                                           {"123456789", 0xe3069283},
                                                           {std::string(32, '\0'), 0x8a9136aa},
                                                           {std::string(32, '\xff'), 0x62a8ab43},
                                                           {rising, 0x46dd794e},
                                                           {falling, 0x113fdb5c}};
  for (const auto& [text, value] : vectors) {
    EXPECT_EQ(crc32c(bytes_of(text)), value) << text.size();
    EXPECT_EQ(crc32c_portable(bytes_of(text)), value) << text.size();
  }
  EXPECT_EQ(crc32c_hex(0x113fdb5c), "113fdb5c");
}

TEST(Crc32c, InstructionAndTablesAgreeAtEverySizeAndPlace) {
  const std::vector<std::byte> bytes = random_bytes(20'000, 1);
  const std::span<const std::byte> all(bytes);
  for (const std::size_t size : {0, 1, 7, 8, 9, 63, 2048, 6143, 6144, 6145, 12'288, 19'990}) {
    for (const std::size_t at : {0, 1, 3, 8}) {
      const auto part = all.subspan(at, size);
      EXPECT_EQ(crc32c(part), crc32c_portable(part)) << size << " at " << at;
    }
  }
}

TEST(Crc32c, PartsContinueAndJoin) {
  const std::vector<std::byte> bytes = random_bytes(50'000, 2);
  const std::span<const std::byte> all(bytes);
  for (const std::size_t cut : {0, 1, 17, 4096, 49'999, 50'000}) {
    const std::uint32_t first = crc32c(all.first(cut));
    EXPECT_EQ(crc32c(all.subspan(cut), first), crc32c(all)) << cut;
    EXPECT_EQ(crc32c_join(first, crc32c(all.subspan(cut)), all.size() - cut), crc32c(all)) << cut;
  }
}

/// FIPS 180-4 examples: one block, two blocks, a million letters.
TEST(Sha256, EqualsPublishedValues) {
  const std::pair<std::string, std::string> vectors[] = {
      {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
      {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
      {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
       "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
      {std::string(1'000'000, 'a'),
       "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"}};
  for (const auto& [text, value] : vectors) {
    Sha256 whole;
    whole.update(text);
    EXPECT_EQ(whole.hex(), value);
    Sha256 pieces;
    for (std::size_t at = 0; at < text.size(); at += 97) {
      pieces.update(std::string_view(text).substr(at, 97));
      (void)pieces.hex();  // digest() does not end the stream
    }
    EXPECT_EQ(pieces.hex(), value);
  }
}

}  // namespace
}  // namespace trireme
