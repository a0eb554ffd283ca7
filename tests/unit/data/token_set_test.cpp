#include "data/shards/token_set.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <fstream>

#include "core/error.hpp"
#include "core/process/open_files.hpp"
#include "unit/data/small_set.hpp"

namespace trireme::data {
namespace {

using testing::numbered_documents;
using testing::TestDirectory;
using testing::write_documents;
using testing::write_manifest;

std::string verify_message(const std::filesystem::path& folder, bool fast = false) {
  try {
    TokenSet::open(folder).verify(fast);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
    return error.what();
  }
  return "good";
}

class ThreeShards : public ::testing::Test {
 protected:
  ThreeShards() {
    for (std::uint64_t i = 0; i < 3; ++i)
      write_documents(path_, numbered_documents(20, 30, unsigned(i)), i, 3, {16});
    write_manifest(path_, 3);
  }

  TestDirectory folder_{"token_set"};
  std::filesystem::path path_ = folder_.path();
};

TEST_F(ThreeShards, AddUp) {
  const TokenSet set = TokenSet::open(path_, {.max_open_files = 1});

  EXPECT_EQ(set.num_shards(), 3U);
  EXPECT_EQ(set.num_documents(), 60U);
  EXPECT_EQ(set.shard(0).num_tokens() + set.shard(1).num_tokens() + set.shard(2).num_tokens(),
            set.num_tokens());
  std::vector<std::int64_t> ids(2);
  for (const std::size_t i : {0U, 2U, 1U, 0U}) EXPECT_NO_THROW(set.shard(i).read_tokens(0, ids));
  EXPECT_EQ(verify_message(path_), "good");
  EXPECT_EQ(verify_message(path_, true), "good");
}

TEST(ManyShards, KeepNoMoreFilesOpenThanTheLimitLeaves) {
  const TestDirectory folder("many_shards");
  constexpr std::uint64_t kShards = 50;
  for (std::uint64_t i = 0; i < kShards; ++i)
    write_documents(folder.path(), numbered_documents(2, 5, unsigned(i)), i, kShards, {16});
  write_manifest(folder.path(), kShards);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 48;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);

  EXPECT_EQ(verify_message(folder.path()), "good");
  EXPECT_EQ(max_open_shards(), 2U);
  raise_open_files_limit();
  rlimit raised{};
  ::getrlimit(RLIMIT_NOFILE, &raised);

  EXPECT_EQ(raised.rlim_cur, std::min<rlim_t>(before.rlim_max, 65536));
  ::setrlimit(RLIMIT_NOFILE, &before);
}

TEST_F(ThreeShards, APlaceThatIsNoSetSaysWhatToDo) {
  EXPECT_NE(
      verify_message(path_ / "shard-00000.h5").find("is a file, but a token set is a directory"),
      std::string::npos);
  EXPECT_TRUE(verify_message(path_ / "shard-00000.h5").ends_with(": give " + path_.string()));
  std::filesystem::create_directories(path_ / "empty");
  EXPECT_NE(verify_message(path_ / "empty").find("is not a token set"), std::string::npos);
  EXPECT_NE(verify_message(path_ / "empty").find("make a token set with `trireme-data pack"),
            std::string::npos);
  std::filesystem::remove(path_ / "manifest.json");
  EXPECT_NE(verify_message(path_).find("run the same `trireme-data pack` again"),
            std::string::npos);
}

TEST_F(ThreeShards, NoticeAnExchangedShard) {
  std::filesystem::copy_file(path_ / "shard-00001.h5", path_ / "shard-00002.h5",
                             std::filesystem::copy_options::overwrite_existing);

  EXPECT_NE(verify_message(path_).find("shard-00002.h5"), std::string::npos);
}

TEST_F(ThreeShards, NoticeAMissingAndAForeignFile) {
  std::ofstream(path_ / "notes.txt") << "hello";
  EXPECT_NE(verify_message(path_).find("notes.txt"), std::string::npos);
  std::filesystem::remove(path_ / "notes.txt");

  std::filesystem::remove(path_ / "shard-00001.h5");
  EXPECT_NE(verify_message(path_).find("shard-00001.h5"), std::string::npos);
}

TEST_F(ThreeShards, NoticeEveryFlippedByteOfTheManifest) {
  const auto path = path_ / "manifest.json";
  const std::string good = read_file(path);
  for (std::size_t at = 0; at < good.size(); at += 3) {
    std::string bad = good;
    bad[at] = static_cast<char>(bad[at] ^ 4);
    std::ofstream(path, std::ios::binary) << bad;

    ASSERT_NE(verify_message(path_, true).find("manifest.json"), std::string::npos)
        << "byte " << at;
  }
}

TEST_F(ThreeShards, FastVerifySkipsTheTokensOnly) {
  const auto path = path_ / "shard-00001.h5";
  const auto at = static_cast<long>(TokenShard::open(path).frame().tokens_offset);
  std::fstream(path, std::ios::in | std::ios::out | std::ios::binary).seekp(at).put('x');

  EXPECT_EQ(verify_message(path_, true), "good");
  EXPECT_NE(verify_message(path_).find("shard-00001.h5: /tokens is damaged in chunk 0"),
            std::string::npos);
}

TEST(TokenSet, RefusesAnUnfinishedDirectory) {
  const TestDirectory folder("token_set_unfinished");
  write_documents(folder.path(), numbered_documents(2, 9, 1), 0, 1, {});

  EXPECT_NE(verify_message(folder.path()).find("manifest.json"), std::string::npos);
}

TEST(Manifest, RoundTrips) {
  Manifest manifest;
  manifest.kind = "pretrain";
  manifest.identity = "i";
  manifest.vocab_size = 6400;
  manifest.eos_id = 2;
  manifest.seq_len = 512;
  manifest.tokenizer_files["tokenizer.json"] = "abc";
  manifest.config_json = R"({"field":"text"})";
  manifest.sources.push_back({"a/b.jsonl", 77, "f"});
  manifest.bad.push_back("a/b.jsonl:12: not JSON");

  const std::string text = manifest.to_text();
  Manifest again = Manifest::from_text(text, "manifest.json");

  EXPECT_EQ(again.to_text(), text);
  EXPECT_EQ(again.content_xxh3, manifest.content_xxh3);
  EXPECT_FALSE(again.bos_id);
  EXPECT_EQ(again.sources[0].size, 77U);
}

}  // namespace
}  // namespace trireme::data
