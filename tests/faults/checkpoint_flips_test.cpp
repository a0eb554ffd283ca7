// Ten thousand single-bit flips and every truncation at 512 bytes; damage_test.cpp has a sample.
#include <gtest/gtest.h>

#include "checkpoint/folder.hpp"
#include "checkpoint/verify.hpp"
#include "core/hash.hpp"
#include "support/child.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme {
namespace {

using namespace test;

constexpr unsigned kLayout = 4;

/// Two checkpoints, the newer one large enough to be read past the page cache.
struct Saved {
  TempFolder folder;
  std::vector<Logical> logicals = make_logicals(17);
  fs::path step = folder / "step-000000002";

  Saved() {
    std::mt19937 random(3);
    logicals.push_back({"param/large", DType::f32, {300, 400}, {}});
    logicals.back().bytes.resize(300 * 400 * 4);
    for (std::byte& byte : logicals.back().bytes) byte = static_cast<std::byte>(random() & 255U);
    save_layout(folder.path(), 1, make_logicals(18), 2, kLayout);
    save_layout(folder.path(), 2, logicals, 2, kLayout);
  }

  /// Refused, and step 1 is taken instead; nothing wrong is ever loaded.
  void expect_refused(const std::string& what) const {
    const auto found = find_newest_good(folder.path(), [](std::string_view) {});
    ASSERT_TRUE(found.has_value()) << what;
    ASSERT_EQ(found->step(), 1) << what;
    RankState mine = make_rank_state(logicals, 0, 1, 1, false);
    try {
      load_tensors(Checkpoint::open(step), mine.state);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::data) << what << ": " << error.what();
      return;
    }
    ASSERT_EQ(mine.storage, make_rank_state(logicals, 0, 1, 1, true).storage) << what;
  }
};

TEST(ManyFlips, NoneOfTenThousandIsAccepted) {
  const Saved saved;
  const auto files = contents(saved.step);
  std::uint64_t total = 0;
  for (const auto& [name, content] : files) total += content.size();
  std::mt19937_64 random(5);
  for (int flip = 0; flip < 10'000; ++flip) {
    std::uint64_t at = random() % total;
    const auto* file = &*files.begin();
    for (const auto& candidate : files) {
      file = &candidate;
      if (at < candidate.second.size()) break;
      at -= candidate.second.size();
    }
    std::string damaged = file->second;
    damaged[at] = static_cast<char>(damaged[at] ^ (1U << (random() % 8)));
    overwrite(saved.step / file->first, damaged);
    saved.expect_refused(cat(file->first, " byte ", at));
    overwrite(saved.step / file->first, file->second);
    if (HasFatalFailure()) return;
  }
  verify_checkpoint(saved.step);
}

TEST(ManyTruncations, NoneAt512BytesIsAccepted) {
  const Saved saved;
  for (const auto& [name, content] : contents(saved.step)) {
    for (std::size_t size = 0; size < content.size(); size += 512) {
      overwrite(saved.step / name, content.substr(0, size));
      saved.expect_refused(cat(name, " cut to ", size));
      if (HasFatalFailure()) return;
    }
    overwrite(saved.step / name, content);
  }
}

/// As many values as are read at all, each as costly as can be: within 3 GB.
TEST(LargestManifest, IsParsedInBoundedMemory) {
  const Saved saved;
  std::string body = "{\n\"format\": \"trireme-checkpoint\",\n\"version\": 1,\n\"values\": [";
  for (int i = 0; i < 11'900'000; ++i) body += "[],";
  body += "[]],\n";
  overwrite(saved.step / kManifestName,
            body + cat("\"self_hash\": \"", xxh3_128_hex(body), "\"\n}\n"));
  const int status = in_child([&] {
    limit_memory(std::uint64_t{3} << 30);
    (void)Checkpoint::open(saved.step);
  });
  EXPECT_EQ(shell_code(status), exit_code(ErrorKind::data));
}

}  // namespace
}  // namespace trireme
