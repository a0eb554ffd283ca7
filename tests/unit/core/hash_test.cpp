#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

using Hash = Scratch;

// Reference values: xxhsum 0.8.1 (-H3 and -H2) of the same bytes.
TEST_F(Hash, GivesThePublishedValues) {
  EXPECT_EQ(xxh3_64(std::string_view("")), 0x2d06800538d394c2U);
  EXPECT_EQ(xxh3_128_hex(""), "99aa06d3014798d86001c324468d497f");
}

TEST_F(Hash, PartsGiveTheHashOfTheWhole) {
  const std::string text(10000, 'x');
  Hasher hasher;
  hasher.update(std::string_view(text).substr(0, 1));
  const std::string early = hasher.hex();
  hasher.update(std::string_view(text).substr(1, 4999));
  hasher.update(std::string_view(text).substr(5000));

  EXPECT_EQ(hasher.hex(), xxh3_128_hex(text));
  EXPECT_EQ(early, xxh3_128_hex("x"));
}

TEST_F(Hash, AFileHashesLikeItsContentAcrossBuffers) {
  std::string content((std::size_t{4} << 20) + 13, '\0');  // one buffer of hash_file and a rest
  for (std::size_t i = 0; i < content.size(); ++i)
    content[i] = static_cast<char>(i * 31 + i / 4096);
  write_file_atomic(at("big"), content);
  write_file_atomic(at("empty"), "");

  EXPECT_EQ(hash_file(at("big")), xxh3_128_hex(content));
  EXPECT_EQ(hash_file(at("empty")), xxh3_128_hex(""));
}

TEST_F(Hash, AnAbsentFileOrADirectoryIsADataError) {
  EXPECT_EQ(error_of([&] { hash_file(at("absent")); }).kind(), ErrorKind::data);
  EXPECT_EQ(error_of([&] { hash_file(at(".")); }).kind(), ErrorKind::data);
}

TEST_F(Hash, OneFlippedBitChangesIt) {
  std::string text(100, 'a');
  const std::string before = xxh3_128_hex(text);
  text[57] = static_cast<char>(text[57] ^ 1);

  EXPECT_NE(xxh3_128_hex(text), before);
}

}  // namespace
}  // namespace trireme
