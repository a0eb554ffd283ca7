// Makes every modifying call of a save fail once, with a full disk and with an I/O error.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "core/files/hdf5.hpp"
#include "support/child.hpp"
#include "support/disk_recorder.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme {
namespace {

using namespace test;

constexpr unsigned kLayout = 4;
constexpr int kSaved = 0;
constexpr int kRefused = 10;

/// Saves step 2 in a child with a failing nth modifying call, so that libhdf5 keeps a valid state
/// in this process. Returns kSaved or kRefused; any other value is an error.
int save_with_failure(const fs::path& folder, std::uint64_t nth, int error) {
  return shell_code(in_child([&] {
    try {
      hdf5_init();
      fail_disk_call(nth, error);
      save_layout(folder, 2, make_logicals(2), 2, kLayout);
    } catch (const Error& failure) {
      ::_exit(failure.kind() == ErrorKind::resource && *failure.what() != '\0' ? kRefused : 20);
    }
  }));
}

std::uint64_t calls_of_one_save() {
  const TempDirectory folder;
  (void)fail_disk_call(0, 0);
  save_layout(folder.path(), 2, make_logicals(2), 2, kLayout);
  return fail_disk_call(0, 0);
}

class RefusedCall : public testing::TestWithParam<int> {};

TEST_P(RefusedCall, IsReportedAndTheEarlierCheckpointLoads) {
  const std::uint64_t num_calls = calls_of_one_save();
  ASSERT_GT(num_calls, 30U);
  std::uint64_t num_refused = 0;
  for (std::uint64_t nth = 1; nth <= num_calls; ++nth) {
    SCOPED_TRACE(formatted("call {} of {}", nth, num_calls));
    const TempDirectory folder;
    save_layout(folder.path(), 1, make_logicals(1), 2, kLayout);

    const int code = save_with_failure(folder.path(), nth, GetParam());

    ASSERT_TRUE(code == kSaved || code == kRefused) << code;
    num_refused += code == kRefused ? 1 : 0;
    const auto found = checkpoint::find_newest_good(
        folder.path(), [](std::string_view text) { ADD_FAILURE() << text; });
    ASSERT_TRUE(found);
    EXPECT_TRUE(code != kSaved || found->step() == 2);
    if (found->step() == 2) continue;  // this also happens if only a call after the commit failed
    save_layout(folder.path(), 2, make_logicals(2), 2, kLayout);
    checkpoint::verify_checkpoint(folder / "step-000000002");
  }
  // Five calls cannot fail the save, because `latest` is a hint and its failure is a warning: its
  // create, write, fsync, rename and the fsync of its directory.
  EXPECT_GE(num_refused, num_calls - 5);
}

INSTANTIATE_TEST_SUITE_P(Errors, RefusedCall, testing::Values(ENOSPC, EIO),
                         [](const testing::TestParamInfo<int>& error) {
                           return std::string(error.param == ENOSPC ? "FullDisk" : "BrokenDisk");
                         });

}  // namespace
}  // namespace trireme
