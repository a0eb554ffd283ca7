#include <gtest/gtest.h>

#include <atomic>

#include "checkpoint/maintenance/verify.hpp"
#include "core/hash/xxh3.hpp"
#include "support/sanitized.hpp"
#include "unit/checkpoint/two_steps.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

struct Saved : TwoSteps {
  void expect_refused(const std::string& what) const {
    message_of(ErrorKind::data, [&] { verify_checkpoint(step); });
    expect_fallback(what);
  }
};

TEST(Damage, FlipOfAnyByteOfAnyFileIsFound) {
  const Saved saved;
  constexpr std::size_t kStride = kSanitized ? 8 : 1;
  std::size_t flips = 0;
  std::mt19937 random(1);
  for (const auto& [name, content] : contents(saved.step)) {
    std::string damaged = content;
    for (std::size_t at = 0; at < content.size(); at += kStride) {
      damaged[at] = static_cast<char>(damaged[at] ^ (1U << (random() % 8)));
      overwrite(saved.step / name, damaged);
      damaged[at] = content[at];
      ++flips;
      EXPECT_THROW(verify_checkpoint(saved.step), Error) << name << " byte " << at;
      if (at % 37 == 0) saved.expect_refused(formatted("{} byte {}", name, at));
      if (at % 11 == 0) saved.expect_never_wrong(formatted("{} byte {}", name, at));
    }
    overwrite(saved.step / name, content);
  }
  verify_checkpoint(saved.step);
  EXPECT_GT(flips, 5000U / kStride);
}

TEST(Damage, EveryTruncationIsFound) {
  const Saved saved;
  for (const auto& [name, content] : contents(saved.step)) {
    for (std::size_t size = 0; size < content.size(); size += 64) {
      overwrite(saved.step / name, content.substr(0, size));
      saved.expect_refused(formatted("{} cut to {}", name, size));
      saved.expect_never_wrong(formatted("{} cut to {}", name, size));
    }
    overwrite(saved.step / name, content);
  }
}

TEST(Damage, MissingFileIsFound) {
  const Saved saved;
  for (const auto& [name, content] : contents(saved.step)) {
    fs::remove(saved.step / name);
    saved.expect_refused(name);
    saved.expect_never_wrong(name);
    overwrite(saved.step / name, content);
  }
}

TEST(Damage, FileFromAnotherStepIsFound) {
  const Saved saved;
  for (const auto& [name, content] : contents(saved.step)) {
    const std::string other = read_file(saved.folder / "step-000000001" / name);
    if (other == content) continue;  // the carried files are the same
    overwrite(saved.step / name, other);
    saved.expect_refused(name);
    saved.expect_never_wrong(name);
    overwrite(saved.step / name, content);
  }
}

TEST(Damage, ShardsSwappedBetweenRanksAreFound) {
  const Saved saved;
  fs::rename(saved.step / "shard-00000-of-00002.h5", saved.step / "x");
  fs::rename(saved.step / "shard-00001-of-00002.h5", saved.step / "shard-00000-of-00002.h5");
  fs::rename(saved.step / "x", saved.step / "shard-00001-of-00002.h5");
  saved.expect_refused("swap");
  saved.expect_never_wrong("swap");
}

TEST(Damage, ADirectoryRenamedToAnotherStepIsDetected) {
  const Saved saved;
  fs::rename(saved.step, saved.folder / "step-000000003");
  const auto found = find_newest_good(saved.folder.path(), [](std::string_view) {});
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step(), 1);
}

TEST(Damage, AForeignFileIsPassedOverWithAWarning) {
  const Saved saved;
  overwrite(saved.step / "README", "x");
  overwrite(saved.step / "config.toml~", "x");
  overwrite(saved.step / ".nfs0000000000000001", "x");

  testing::internal::CaptureStderr();
  EXPECT_EQ(verify_checkpoint(saved.step).step(), 2);
  const std::string log = testing::internal::GetCapturedStderr();

  EXPECT_NE(log.find("does not list; they are ignored: README, config.toml~"), std::string::npos)
      << log;
  comm::run_ranks(3, [&](comm::Communicator& world) {
    const auto found = find_newest_good(saved.folder.path(), world, [](std::string_view) {});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step(), 2);
  });
}

TEST(Damage, AShardTooManyAndSymbolicLinksAreFound) {
  const Saved saved;
  overwrite(saved.step / "shard-00002-of-00003.h5", "x");
  saved.expect_refused("a shard too many");
  fs::remove(saved.step / "shard-00002-of-00003.h5");
  for (const auto& [name, content] : contents(saved.step)) {
    overwrite(saved.folder / "outside", content);
    fs::remove(saved.step / name);
    fs::create_symlink(saved.folder / "outside", saved.step / name);
    saved.expect_refused("link " + name);
    fs::remove(saved.step / name);
    overwrite(saved.step / name, content);
  }
}

TEST(Damage, AllRanksFallBackTogether) {
  const Saved saved;
  const fs::path shard = saved.step / "shard-00001-of-00002.h5";
  std::string content = read_file(shard);
  content[content.size() / 2] ^= 1;
  overwrite(shard, content);
  for (const int ranks : {1, 2, 3, 4}) {
    std::atomic<int> warnings{0};
    comm::run_ranks(ranks, [&](comm::Communicator& world) {
      const auto found =
          find_newest_good(saved.folder.path(), world, [&](std::string_view) { ++warnings; });
      ASSERT_TRUE(found);
      EXPECT_EQ(found->step(), 1);
    });
    EXPECT_EQ(warnings, 1);
  }
}

TEST(Damage, EmptyAndAbsentDirectoriesHaveNoCheckpoint) {
  const TempDirectory folder;
  EXPECT_FALSE(find_newest_good(folder.path(), [](std::string_view) {}));
  EXPECT_FALSE(find_newest_good(folder / "none", [](std::string_view) {}));
  fs::create_directory(folder / "step-1");
  fs::create_directory(folder / "step-00000000x");
  fs::create_directory(folder / ".tmp-step-000000001");
  EXPECT_TRUE(list_steps(folder.path()).empty());
}

/// Returns `good` with a change and a matching hash.
std::string forged(std::string good, const std::string& from, const std::string& to) {
  good.resize(good.rfind("\"self_hash\""));
  const std::size_t at = good.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  if (at != std::string::npos) good.replace(at, from.size(), to);
  return good + formatted("\"self_hash\": \"{}\"\n}}\n", xxh3_128_hex(good));
}

TEST(Damage, ASliceThatIsNotAsTheManifestSaysIsFoundBeforeALoad) {
  const Saved saved;
  const std::string good = read_file(saved.step / kManifestName);
  const CheckpointManifest manifest = parse_manifest(good, "m");
  std::size_t forgeries = 0;
  for (const auto& [name, tensor] : manifest.tensors) {
    for (const SavedSlice& slice : tensor.slices) {
      const std::string sum = formatted("\"crc32c\":\"{}\"", slice.hash);
      const std::string place = formatted("\"at\":{},", slice.at);
      overwrite(saved.step / kManifestName, forged(good, sum, "\"crc32c\":\"deadbeef\""));
      saved.expect_refused(name + " sum");
      overwrite(saved.step / kManifestName,
                forged(good, place, formatted("\"at\":{},", slice.at - 1)));
      saved.expect_refused(name + " place");
      forgeries += 2;
    }
  }
  EXPECT_GT(forgeries, 10U);
  overwrite(saved.step / kManifestName, good);
  verify_checkpoint(saved.step);
}

TEST(Damage, AStepIsKnownByItsDirectoryUnderAnyPath) {
  const Saved saved;
  const fs::path wrong = saved.folder / "step-000000003";
  fs::rename(saved.step, wrong);
  for (const std::string& name : {wrong.string(), wrong.string() + "/", (wrong / ".").string(),
                                  (wrong / "../step-000000003").string()}) {
    message_of(ErrorKind::data, [&] { verify_checkpoint(locate_checkpoints(name).path); });
  }
}

TEST(Damage, ATensorWithoutItsShardIsRefused) {
  const Saved saved;
  const Checkpoint checkpoint = Checkpoint::open(saved.step);
  fs::remove(saved.step / "shard-00000-of-00002.h5");
  for (const auto& [name, tensor] : checkpoint.manifest().tensors) {
    const std::string& wanted = name;
    message_of(ErrorKind::data, [&] { (void)checkpoint.read_logical(wanted); });
  }
}

/// Tests a manifest with wrong content and a matching hash: every value is checked against the
/// files and the shapes.
TEST(Damage, AFalseManifestIsRefusedWithoutHarm) {
  const Saved saved;
  const std::string good = read_file(saved.step / kManifestName);
  const auto forge = [&](const std::string& from, const std::string& to) {
    SCOPED_TRACE(to.substr(0, 80));
    overwrite(saved.step / kManifestName, forged(good, from, to));
    saved.expect_refused("");
    saved.expect_never_wrong("");
  };
  forge("\"version\": 1", "\"version\": 2");
  forge("\"shape\":[11,6]", "\"shape\":[4611686018427387904,6]");
  forge("\"shape\":[11,6]", "\"shape\":[-11,6]");
  forge("\"shape\":[11,6]", "\"shape\":[12,6]");
  forge("\"shape\":[11,6]", "\"shape\":[66]");
  forge("\"shard\":0", "\"shard\":99");
  forge("\"at\":", "\"at\":9000000000000000000, \"was\":");
  forge("\"dtype\":\"f32\"", "\"dtype\":\"f64\"");
  forge("\"dtype\":\"f32\"", "\"dtype\":\"float\"");
  forge("shard-00000-of-00002.h5", "../step-000000001/shard-00000-of-00002.h5");
  forge("shard-00000-of-00002.h5", "/etc/passwd");
  forge("\"name\":\"param/empty\"", "\"name\":\"param/../empty\"");
  forge("\"bytes\":", "\"bytes\":18446744073709551615, \"was\":");
  forge("\"step\": 2", "\"step\": -2");
  forge("\"flat\":[0,", "\"flat\":[-5,");
  forge("\"tensors\": [", "\"tensors\": 7, \"was\": [");
  forge("\"step\": 2", "\"step\": " + std::string(100'000, '[') + std::string(100'000, ']'));
}

}  // namespace
}  // namespace trireme::checkpoint
