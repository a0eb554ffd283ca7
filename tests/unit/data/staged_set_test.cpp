#include "data/shards/staged_set.hpp"

#include <gtest/gtest.h>
#include <sys/file.h>

#include <fstream>
#include <thread>

#include "core/error.hpp"
#include "data/shards/token_set.hpp"
#include "unit/data/small_set.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

using testing::numbered_documents;
using testing::TestDirectory;
using testing::write_documents;
using testing::write_manifest;

class StagedSets : public ::testing::Test {
 protected:
  StagedSets() { write_set(set_, 0); }

  static void write_set(const fs::path& path, unsigned seed) {
    fs::create_directories(path);
    for (std::uint64_t i = 0; i < 2; ++i)
      write_documents(path, numbered_documents(20, 30, seed + unsigned(i)), i, 2, {16});
    write_manifest(path, 2);
  }

  /// Returns the names in the directory of copies.
  [[nodiscard]] std::size_t num_entries() const {
    const fs::path staged = place_ / "trireme-staged";
    return fs::exists(staged)
               ? static_cast<std::size_t>(std::distance(fs::directory_iterator(staged), {}))
               : 0;
  }

  [[nodiscard]] std::string hash() const { return TokenSet::open(set_).content_hash(); }

  TestDirectory folder_{"staged_set"};
  fs::path set_ = folder_.path() / "set";
  fs::path place_ = folder_.path() / "disk";
};

TEST_F(StagedSets, AreCopiedOnceAndDeletedByTheLast) {
  {
    const StagedSet first(set_, place_);
    {
      const StagedSet second(set_, place_);
      EXPECT_TRUE(first.made());
      EXPECT_FALSE(second.made());
      EXPECT_EQ(first.directory(), second.directory());
      EXPECT_NO_THROW(TokenSet::open(second.directory()).verify(false));
      EXPECT_EQ(TokenSet::open(second.directory()).content_hash(), hash());
    }
    EXPECT_TRUE(fs::exists(first.directory() / "manifest.json"));
  }
  EXPECT_EQ(num_entries(), 0U);
}

TEST_F(StagedSets, AreMadeByOneOfManyAtOnce) {
  std::atomic<int> made = 0;
  std::vector<std::thread> ranks;
  for (int i = 0; i < 8; ++i) {
    ranks.emplace_back([&] {
      const StagedSet staged(set_, place_);
      EXPECT_NO_THROW(TokenSet::open(staged.directory()).verify(false));
      made += staged.made() ? 1 : 0;
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
    });
  }
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(made, 1);
  EXPECT_EQ(num_entries(), 0U);
}

TEST_F(StagedSets, AreCheckedBeforeTheyAreReadAfterAKill) {
  const fs::path left = place_ / "trireme-staged" / hash();
  fs::create_directories(left.parent_path());
  fs::copy(set_, left, fs::copy_options::recursive);
  EXPECT_FALSE(StagedSet(set_, place_).made());  // complete: read as it is, then deleted
  EXPECT_EQ(num_entries(), 0U);

  fs::copy(set_, left, fs::copy_options::recursive);
  std::fstream(left / "shard-00001.h5", std::ios::in | std::ios::out | std::ios::binary).seekp(700)
      << 'x';
  fs::create_directories(left.string() + ".part");
  const StagedSet staged(set_, place_);
  EXPECT_TRUE(staged.made());
  EXPECT_NO_THROW(TokenSet::open(staged.directory()).verify(false));
}

TEST_F(StagedSets, AreDeletedIfNoOtherProcessReadsThem) {
  const fs::path other_set = folder_.path() / "other";
  write_set(other_set, 7);
  const StagedSet kept(other_set, place_);
  const fs::path left = place_ / "trireme-staged" / "0123";
  fs::create_directories(left);
  std::ofstream(left.string() + ".lock");
  const StagedSet staged(set_, place_);
  EXPECT_FALSE(fs::exists(left));
  EXPECT_FALSE(fs::exists(left.string() + ".lock"));
  EXPECT_TRUE(fs::exists(kept.directory() / "manifest.json"));
}

TEST_F(StagedSets, LeaveNothingIfTheyAreDamaged) {
  std::fstream(set_ / "shard-00001.h5", std::ios::in | std::ios::out | std::ios::binary).seekp(700)
      << 'x';
  try {
    const StagedSet staged(set_, place_);
    FAIL() << "a damaged set was staged";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
  }
  EXPECT_EQ(num_entries(), 0U);
}

}  // namespace
}  // namespace trireme::data
