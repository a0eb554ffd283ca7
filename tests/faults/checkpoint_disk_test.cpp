// Tests real disks that refuse to write: full, read-only.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "core/files/hdf5.hpp"
#include "support/child.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme {
namespace {

using namespace test;

constexpr unsigned kLayout = 4;
constexpr int kSkip = 77;

/// Runs `body` in a child with its own small disk, mounted at `place`. Returns false if this
/// process may not mount disks.
bool on_small_disk(const fs::path& place, const std::function<void()>& body) {
  const int code = shell_code(in_child([&] {
    const bool mounted = ::unshare(CLONE_NEWNS) == 0 &&
                         ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                         ::mount("tmpfs", place.c_str(), "tmpfs", 0, "size=4m") == 0;
    if (!mounted) ::_exit(kSkip);
    hdf5_init();
    body();
    ::_exit(testing::Test::HasFailure() ? 1 : 0);
  }));
  EXPECT_TRUE(code == 0 || code == kSkip) << "exit code " << code << ", see above";
  return code != kSkip;
}

void resize_disk(const fs::path& place, std::uint64_t kilobytes) {
  ASSERT_EQ(::mount("tmpfs", place.c_str(), "tmpfs", MS_REMOUNT,
                    formatted("size={}k", kilobytes).c_str()),
            0);
}

void expect_loads(const fs::path& folder, std::int64_t step) {
  const auto found =
      checkpoint::find_newest_good(folder, [](std::string_view text) { ADD_FAILURE() << text; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step(), step);
}

TEST(FullDisk, AtAnySizeTheErrorIsClearAndTheEarlierCheckpointLoads) {
  const TempDirectory folder;
  const bool ran = on_small_disk(folder.path(), [&] {
    save_layout(folder.path(), 1, make_logicals(1), 2, kLayout);
    const fs::space_info space = fs::space(folder.path());
    const std::uint64_t used = (space.capacity - space.free) / 1024;
    std::vector<Logical> logicals = make_logicals(2);
    logicals.push_back({"param/large", DType::f32, {20'000}, std::vector<std::byte>(80'000)});
    int refused = 0;
    bool saved = false;
    for (std::uint64_t extra = 0; !saved && extra < 2048; extra += 4) {
      resize_disk(folder.path(), used + extra);
      try {
        save_layout(folder.path(), 2, logicals, 2, kLayout);
        saved = true;
      } catch (const Error& error) {
        ++refused;
        EXPECT_EQ(error.kind(), ErrorKind::resource) << error.what();
        EXPECT_NE(std::string(error.what()).find("checkpoint of step 2"), std::string::npos)
            << error.what();
        resize_disk(folder.path(), 4096);
        expect_loads(folder.path(), 1);
      }
    }
    EXPECT_TRUE(saved);
    EXPECT_GT(refused, 20);
    expect_loads(folder.path(), 2);
  });
  if (!ran) GTEST_SKIP() << "needs the right to mount a tmpfs (root)";
}

TEST(ReadOnlyDisk, SaysSoAndTheEarlierCheckpointLoads) {
  const TempDirectory folder;
  const bool ran = on_small_disk(folder.path(), [&] {
    save_layout(folder.path(), 1, make_logicals(1), 2, kLayout);
    ASSERT_EQ(::mount("tmpfs", folder.path().c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr), 0);

    const std::string text = message_of(
        ErrorKind::usage, [&] { save_layout(folder.path(), 2, make_logicals(2), 2, kLayout); });

    EXPECT_NE(text.find("Read-only"), std::string::npos) << text;
    expect_loads(folder.path(), 1);
  });
  if (!ran) GTEST_SKIP() << "needs the right to mount a tmpfs (root)";
}

}  // namespace
}  // namespace trireme
