#include <gtest/gtest.h>

#include <csignal>
#include <cstdlib>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/retention.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "core/process/failpoints.hpp"
#include "support/child.hpp"
#include "unit/checkpoint/one_rank.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;

constexpr unsigned kLayout = 4;

/// Every failpoint of the protocol in order; the last two come after the commit.
constexpr const char* kPoints[] = {
    "checkpoint.stage",          "checkpoint.mkdir",       "checkpoint.shard.create",
    "checkpoint.shard.skeleton", "checkpoint.shard.write", "checkpoint.shard.sync",
    "checkpoint.shard.folder",   "checkpoint.shard.done",  "checkpoint.gathered",
    "checkpoint.files",          "checkpoint.manifest",    "checkpoint.manifest.written",
    "checkpoint.publish",        "checkpoint.published",   "checkpoint.done"};

bool after_commit(const std::string& point) {
  return point == "checkpoint.published" || point == "checkpoint.done";
}

/// Runs `work` in a child with one fault armed.
int in_child_with_fault(const std::string& point, const std::string& action, int nth,
                        const std::function<void()>& work) {
  return in_child([&] {
    ::setenv("TRIREME_FAULT", formatted("{}:*:{}:{}", point, nth, action).c_str(), 1);
    ::setenv("TRIREME_ALLOW_FAULTS", "1", 1);
    failpoints_init(0);
    work();
  });
}

class KillAtPoint : public testing::TestWithParam<const char*> {};

TEST_P(KillAtPoint, TheOldOrTheNewCheckpointLoadsAndTheNextSaveSucceeds) {
  const std::string point = GetParam();
  for (const int ranks : {1, 2, 3}) {
    for (const int nth : {1, 2}) {
      const TempDirectory folder;
      const std::vector<Logical> before = make_logicals(1);
      const std::vector<Logical> after = make_logicals(2);
      save_layout(folder.path(), 1, before, ranks, kLayout);
      const std::string old_hash = hash_alone(Checkpoint::open(folder / "step-000000001"));

      const int status = in_child_with_fault(
          point, "kill9", nth, [&] { save_layout(folder.path(), 2, after, ranks, kLayout); });

      const bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
      ASSERT_TRUE(killed || nth > 1) << point << " is not passed";
      const auto found =
          find_newest_good(folder.path(), [](std::string_view text) { ADD_FAILURE() << text; });
      ASSERT_TRUE(found) << point;
      if (!killed || after_commit(point)) {
        EXPECT_EQ(found->step(), 2) << point;
        continue;
      }
      EXPECT_EQ(found->step(), 1) << point;
      EXPECT_EQ(hash_alone(*found), old_hash) << point;
      save_layout(folder.path(), 2, after, ranks, kLayout);
      verify_checkpoint(folder / "step-000000002");
      EXPECT_FALSE(fs::exists(folder / ".tmp-step-000000002"));
    }
  }
}

TEST_P(KillAtPoint, AnErrorThereIsReportedAndHarmsNothing) {
  const std::string point = GetParam();
  const TempDirectory folder;
  save_layout(folder.path(), 1, make_logicals(1), 2, kLayout);

  const int status = in_child_with_fault(
      point, "enospc", 1, [&] { save_layout(folder.path(), 2, make_logicals(2), 2, kLayout); });

  ASSERT_TRUE(WIFEXITED(status)) << point;
  EXPECT_EQ(WEXITSTATUS(status), exit_code(ErrorKind::resource)) << point;
  const auto found =
      find_newest_good(folder.path(), [](std::string_view text) { ADD_FAILURE() << text; });
  ASSERT_TRUE(found);
  EXPECT_EQ(found->step(), after_commit(point) ? 2 : 1) << point;
}

std::string test_name(const testing::TestParamInfo<const char*>& point) {
  std::string name = point.param;
  std::replace(name.begin(), name.end(), '.', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Protocol, KillAtPoint, testing::ValuesIn(kPoints), test_name);

TEST(KillAtPrune, LeavesNoHalfDeletedStep) {
  for (const std::string point : {"checkpoint.prune", "checkpoint.pruned"}) {
    const TempDirectory folder;
    for (const int step : {1, 2, 3}) save_layout(folder.path(), step, make_logicals(1), 2, kLayout);
    const int status = in_child_with_fault(point, "kill9", 1, [&] {
      prune_checkpoints(folder.path(), {.run_id = "run", .keep_last = 2}, [](auto) {});
    });
    ASSERT_TRUE(WIFSIGNALED(status));
    for (const std::int64_t step : list_steps(folder.path()))
      verify_checkpoint(folder.path() / step_directory_name(step));
    EXPECT_GE(list_steps(folder.path()).size(), 2U);
  }
}

}  // namespace
}  // namespace trireme::checkpoint
