#include <array>
#include <cmath>

#include "checkpoint/exchange/safetensors.hpp"
#include "checkpoint/reference/reference_scores.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/files/directories.hpp"
#include "core/hash/xxh3.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

const std::string kContent = "0123456789abcdef0123456789abcdef";
const std::string kOther(32, 'f');

ReferenceTable some_table() {
  ReferenceTable table;
  table.origin = {std::string(64, 'a'), "bf16", "answer"};
  table.sets = {{.name = "sets/a",
                 .content_xxh3 = kContent,
                 .seq_len = 2048,
                 .documents = {0, 2},
                 .keys = {7, ~std::uint64_t{0}},
                 .sums = {-1.5, -2.25, -1e-300, -7},
                 .counts = {3, 4, 1, 2}},
                {.name = "sets/none", .content_xxh3 = kOther, .seq_len = 2048},
                {.name = "sets/a",
                 .content_xxh3 = kContent,
                 .seq_len = 512,
                 .documents = {1},
                 .keys = {9},
                 .sums = {-3, -4},
                 .counts = {5, 6}}};
  return table;
}

TEST(Reference, IsReadAsItWasWritten) {
  const TempDirectory folder;
  const fs::path place = folder / "scores";
  EXPECT_FALSE(is_reference(place));
  make_directories(folder / ".tmp-scores");  // file of a killed writer
  write_file_atomic(folder / ".tmp-scores/reference.safetensors", "part");
  save_reference(place, some_table());
  EXPECT_TRUE(is_reference(place));
  EXPECT_FALSE(fs::exists(folder / ".tmp-scores"));

  const ReferenceTable read = load_reference(place);

  EXPECT_EQ(read.origin, some_table().origin);
  ASSERT_EQ(read.sets.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    const ReferenceSet expected = some_table().sets[i];
    EXPECT_EQ(read.sets[i].name, expected.name);
    EXPECT_EQ(read.sets[i].content_xxh3, expected.content_xxh3);
    EXPECT_EQ(read.sets[i].seq_len, expected.seq_len);
    EXPECT_EQ(read.sets[i].documents, expected.documents);
    EXPECT_EQ(read.sets[i].keys, expected.keys);
    EXPECT_EQ(read.sets[i].sums, expected.sums);
    EXPECT_EQ(read.sets[i].counts, expected.counts);
  }
  save_reference(folder / "empty", {});
  EXPECT_TRUE(load_reference(folder / "empty").sets.empty());
}

TEST(Reference, FindsASetByContentAndLength) {
  const ReferenceTable table = some_table();
  EXPECT_EQ(table.find(kContent, 2048), &table.sets[0]);
  EXPECT_EQ(table.find(kContent, 512), &table.sets[2]);
  EXPECT_EQ(table.find(kContent, 1024), nullptr);
  EXPECT_EQ(table.find(kOther, 512), nullptr);
  EXPECT_TRUE(table.sets[0].has(2));
  EXPECT_FALSE(table.sets[0].has(1));
}

TEST(Reference, IsNotReplaced) {
  const TempDirectory folder;
  save_reference(folder / "scores", some_table());
  const std::string before = read_file(folder / "scores/reference.json");
  message_of(ErrorKind::usage, [&] { save_reference(folder / "scores", {}); });
  EXPECT_EQ(read_file(folder / "scores/reference.json"), before);
}

/// Files in the format of version 0.1 of the program: one data set with its documents in order.
void write_version_1(const fs::path& place, const std::vector<double>& sums,
                     const std::vector<std::int32_t>& counts) {
  make_directories(place);
  comm::SelfCommunicator alone;
  const auto pairs = static_cast<std::int64_t>(sums.size() / 2);
  const auto fill = [](const auto& values) {
    return [bytes = std::as_bytes(std::span(values))](std::span<std::byte> into) {
      std::copy(bytes.begin(), bytes.end(), into.begin());
    };
  };
  const std::array tensors{SafetensorsSource{"sums", DType::f64, {pairs, 2}, fill(sums)},
                           SafetensorsSource{"counts", DType::i32, {pairs, 2}, fill(counts)}};
  const fs::path file = place / "reference.safetensors";
  write_safetensors(file, tensors, alone);
  std::string head = formatted(
      "{{\n  \"format\": \"trireme-reference\",\n  \"version\": 1,\n  \"set_xxh3_128\": "
      "\"{}\",\n  \"seq_len\": 48,\n  \"weights_sha256\": \"{}\",\n  \"num_pairs\": {},\n  "
      "\"bytes\": {},\n  \"xxh3_128\": \"{}\",\n",
      kContent, std::string(64, 'b'), pairs, fs::file_size(file), hash_file(file));
  head += formatted("  \"self_hash\": \"{}\"\n}}\n", xxh3_128_hex(head));
  write_file_atomic(place / "reference.json", head);
}

TEST(Reference, FromVersion1HasOneSetWithoutKeys) {
  const TempDirectory folder;
  const double nan = std::nan("");
  write_version_1(folder / "old", {-1, -2, nan, nan, -5, -6}, {3, 4, 0, 0, 1, 2});

  const ReferenceTable read = load_reference(folder / "old");

  EXPECT_EQ(read.origin, (ReferenceOrigin{std::string(64, 'b'), "", "all"}));
  ASSERT_EQ(read.sets.size(), 1U);
  EXPECT_EQ(read.find(kContent, 48), &read.sets[0]);
  EXPECT_EQ(read.sets[0].documents, (std::vector<std::int64_t>{0, 2}));
  EXPECT_TRUE(read.sets[0].keys.empty());
  EXPECT_EQ(read.sets[0].sums, (std::vector<double>{-1, -2, -5, -6}));
  EXPECT_EQ(read.sets[0].counts, (std::vector<std::int32_t>{3, 4, 1, 2}));
}

TEST(Reference, DamageOfAnyByteIsBadData) {
  const TempDirectory folder;
  const fs::path place = folder / "scores";
  save_reference(place, some_table());
  for (const char* name : {"reference.json", "reference.safetensors"}) {
    const std::string good = read_file(place / name);
    for (std::size_t at = 0; at < good.size(); at += 7) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ 0x11);
      write_file_atomic(place / name, bad);
      message_of(ErrorKind::data, [&] { (void)load_reference(place); });
    }
    write_file_atomic(place / name, good.substr(0, good.size() - 5));
    message_of(ErrorKind::data, [&] { (void)load_reference(place); });
    write_file_atomic(place / name, good);
  }
  EXPECT_NO_THROW((void)load_reference(place));
  fs::remove(place / "reference.safetensors");
  message_of(ErrorKind::data, [&] { (void)load_reference(place); });
  message_of(ErrorKind::data, [&] { (void)load_reference(folder / "none"); });
}

}  // namespace
}  // namespace trireme::checkpoint
