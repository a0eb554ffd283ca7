#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <thread>

#include "core/error.hpp"
#include "data/shards/shard_reader.hpp"
#include "unit/data/small_set.hpp"

namespace trireme::data {
namespace {

using testing::numbered_documents;
using testing::TestDirectory;
using testing::write_documents;

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
    return error.what();
  }
  return "no error";
}

void open_and_verify(const std::filesystem::path& path) {
  TokenShard::open(path).verify_tokens();
}

TEST(TokenShard, GivesBackWhatWasWritten) {
  const TestDirectory folder("shard_round_trip");
  const auto documents = numbered_documents(50, 40, 1);

  const auto path = write_documents(folder.path(), documents, 0, 1, {16, 64});

  const TokenShard shard = TokenShard::open(path);
  EXPECT_EQ(path.filename(), "shard-00000.h5");
  EXPECT_EQ(shard.num_documents(), 50U);
  EXPECT_EQ(shard.meta().identity, "test");
  EXPECT_EQ(shard.prepared().size(), 2U);
  const auto offsets = shard.document_offsets();
  for (std::size_t d = 0; d < documents.size(); ++d) {
    std::vector<std::int64_t> ids(documents[d].size());
    shard.read_tokens(shard.document_begin(d), ids);
    ASSERT_TRUE(std::equal(ids.begin(), ids.end(), documents[d].begin(), documents[d].end()));
    ASSERT_EQ(offsets[d + 1] - offsets[d], documents[d].size());
  }
  EXPECT_EQ(shard.document_source_offsets().back(), shard.num_tokens());
  EXPECT_NO_THROW(shard.verify_tokens());
}

TEST(TokenShard, ReadsOnAfterGivingItsFileBack) {
  const TestDirectory folder("shard_release");
  const TokenShard shard =
      TokenShard::open(write_documents(folder.path(), numbered_documents(5, 9, 1), 0, 1, {}));
  std::vector<std::int64_t> ids(3);

  shard.release();
  shard.read_tokens(1, ids);

  EXPECT_EQ(ids, (std::vector<std::int64_t>{1, 2, 3}));
}

TEST(TokenShard, MayBeEmpty) {
  const TestDirectory folder("shard_empty");

  const TokenShard shard = TokenShard::open(write_documents(folder.path(), {}, 3, 4, {16}));

  EXPECT_EQ(shard.num_tokens(), 0U);
  EXPECT_EQ(shard.prepared().at(16), 0U);
  EXPECT_NO_THROW(shard.verify_tokens());
}

TEST(TokenShard, SpansSeveralChunks) {
  const TestDirectory folder("shard_chunks");
  testing::Documents documents(3, std::vector<std::uint16_t>(900'000));
  for (auto& document : documents) {
    for (std::size_t i = 0; i < document.size(); ++i)
      document[i] = static_cast<std::uint16_t>(i * 7);
  }
  const auto path = write_documents(folder.path(), documents, 0, 1, {});
  const TokenShard shard = TokenShard::open(path);
  std::vector<std::int64_t> ids(1'800'000);

  shard.read_tokens(900'000, ids);

  EXPECT_EQ(ids[0], 0);
  EXPECT_EQ(ids[899'999], static_cast<std::uint16_t>(899'999 * 7));
  EXPECT_EQ(ids[900'000], 0);
}

TEST(TokenShard, EqualContentGivesEqualBytesAtAnyTime) {
  const TestDirectory one("shard_bytes_one");
  const TestDirectory two("shard_bytes_two");
  const auto documents = numbered_documents(100, 30, 5);

  const auto a = write_documents(one.path(), documents, 0, 1, {32});
  // HDF5 stores times in whole seconds
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  const auto b = write_documents(two.path(), documents, 0, 1, {32});

  EXPECT_EQ(read_file(a), read_file(b));
}

TEST(TokenShard, NamesADamagedTokenChunk) {
  const TestDirectory folder("shard_damage_chunk");
  testing::Documents documents(1, std::vector<std::uint16_t>(2'500'000, 5));
  const auto path = write_documents(folder.path(), documents, 0, 1, {});
  const std::uint64_t at = TokenShard::open(path).frame().tokens_offset + 2 * 1'200'000;
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary)
      .seekp(static_cast<long>(at))
      .put('x');
  const TokenShard shard = TokenShard::open(path);
  std::vector<std::int64_t> ids(8);

  EXPECT_NO_THROW(shard.read_tokens(0, ids));
  EXPECT_NE(message_of([&] { shard.read_tokens(1'100'000, ids); }).find("chunk 1"),
            std::string::npos);
  EXPECT_NE(message_of([&] {
              shard.verify_tokens();
            }).find("shard-00000.h5: /tokens is damaged in chunk 1"),
            std::string::npos);
}

TEST(TokenShard, SeesEveryFlippedByteAndEveryTruncation) {
  const TestDirectory folder("shard_damage_any");
  const auto path = write_documents(folder.path(), numbered_documents(12, 20, 2), 0, 1, {16});
  const std::string good = read_file(path);
  const auto put = [&](const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
  };

  for (std::size_t at = 0; at < good.size(); at += 7) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ (1 << (at % 8)));
    put(bad);
    ASSERT_NE(message_of([&] { open_and_verify(path); }).find("shard-00000.h5"), std::string::npos)
        << "byte " << at;
  }
  for (std::size_t size = 0; size < good.size(); size += (size < 200 ? 1 : 61)) {
    put(good.substr(0, size));
    ASSERT_NE(message_of([&] { open_and_verify(path); }), "no error") << "size " << size;
  }
  put(good + "x");
  EXPECT_NE(message_of([&] { open_and_verify(path); }), "no error");
  put(good);
  EXPECT_NO_THROW(open_and_verify(path));
}

TEST(TokenShard, IsNotOverwritten) {
  const TestDirectory folder("shard_exists");
  write_documents(folder.path(), numbered_documents(2, 9, 1), 0, 1, {});

  EXPECT_THROW(write_documents(folder.path(), numbered_documents(3, 9, 1), 0, 1, {}), Error);
}

TEST(TokenShard, ChoosesTheNarrowestType) {
  EXPECT_EQ(token_dtype_for(65536), DType::u16);
  EXPECT_EQ(token_dtype_for(65537), DType::u32);
  EXPECT_THROW(token_dtype_for(0), Error);
}

}  // namespace
}  // namespace trireme::data
