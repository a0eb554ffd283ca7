#include "checkpoint/maintenance/retention.hpp"

#include <gtest/gtest.h>

#include "checkpoint/format/folder.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;
using Steps = std::vector<std::int64_t>;

void save_steps(const fs::path& folder, const Steps& steps, const std::string& run_id = "run") {
  for (const std::int64_t step : steps) save_layout(folder, step, make_logicals(1), 1, 0, run_id);
}

void damage(const fs::path& step) {
  const fs::path shard = step / "shard-00000-of-00001.h5";
  std::string content = read_file(shard);
  content.back() ^= 1;
  content[content.size() / 2] ^= 1;
  overwrite(shard, content);
}

const WarningSink kQuiet = [](std::string_view) {};

TEST(Retention, KeepsTheNewest) {
  const TempDirectory folder;
  save_steps(folder.path(), {1, 2, 3, 4, 5});
  EXPECT_EQ(prune_checkpoints(folder.path(), {.run_id = "run", .keep_last = 2}, kQuiet),
            (Steps{3, 2, 1}));
  EXPECT_EQ(list_steps(folder.path()), (Steps{5, 4}));
}

TEST(Retention, DamagedOnesDoNotCount) {
  const TempDirectory folder;
  save_steps(folder.path(), {1, 2, 3, 4, 5});
  damage(folder / "step-000000005");
  damage(folder / "step-000000003");
  EXPECT_EQ(prune_checkpoints(folder.path(), {.run_id = "run", .keep_last = 2}, kQuiet),
            (Steps{1}));
  EXPECT_EQ(list_steps(folder.path()), (Steps{5, 4, 3, 2}));
}

TEST(Retention, TrustedOnesAreCheckedBySize) {
  const TempDirectory folder;
  save_steps(folder.path(), {1, 2, 3});
  fs::resize_file(folder / "step-000000003/shard-00000-of-00001.h5", 10);
  EXPECT_EQ(prune_checkpoints(folder.path(), {.run_id = "run", .keep_last = 1, .trusted = {3, 2}},
                              kQuiet),
            (Steps{1}));
  EXPECT_EQ(list_steps(folder.path()), (Steps{3, 2}));
}

TEST(Retention, OtherRunsAndUnreadableStepsAreNotTouched) {
  const TempDirectory folder;
  save_steps(folder.path(), {1}, "other");
  save_steps(folder.path(), {2, 3, 4, 5});
  overwrite(folder / "step-000000002/manifest.json", "{}");
  EXPECT_EQ(prune_checkpoints(folder.path(), {.run_id = "run", .keep_last = 1}, kQuiet),
            (Steps{4, 3}));
  EXPECT_EQ(list_steps(folder.path()), (Steps{5, 2, 1}));
}

TEST(Retention, EveryNthStaysForever) {
  const TempDirectory folder;
  save_steps(folder.path(), {10, 15, 20, 25, 30});
  EXPECT_EQ(
      prune_checkpoints(folder.path(), {.run_id = "run", .keep_last = 1, .keep_every = 20}, kQuiet),
      (Steps{25, 15, 10}));
}

TEST(Retention, TheBestByValidationLossStay) {
  const TempDirectory folder;
  const auto save = [&](std::int64_t step, const std::string& loss) {
    comm::run_ranks(1, [&](comm::Communicator& world) {
      RankState mine = make_rank_state(make_logicals(1), 0, 1, 0, true);
      if (!loss.empty()) mine.state.values[kValidLossValue] = loss;
      save_checkpoint(folder.path(), step, mine.state, world, {.run_id = "run"});
    });
  };
  save(1, "2.5");
  save(2, "");
  save(3, "1.5");
  save(4, "1e-1");
  save(5, "2");
  save(6, "nan");
  save(7, "3");
  damage(folder / "step-000000004");
  const PruneOptions options{.run_id = "run", .keep_last = 1, .keep_best = 2};

  EXPECT_EQ(surplus_checkpoints(folder.path(), options, kQuiet), (Steps{6, 4, 2, 1}));
  EXPECT_EQ(list_steps(folder.path()).size(), 7U);
  EXPECT_EQ(prune_checkpoints(folder.path(), options, kQuiet), (Steps{6, 4, 2, 1}));
  EXPECT_EQ(list_steps(folder.path()), (Steps{7, 5, 3}));
}

TEST(Retention, KeepingNoneIsRefused) {
  const TempDirectory folder;
  save_steps(folder.path(), {1});
  message_of(ErrorKind::usage,
             [&] { prune_checkpoints(folder.path(), {.run_id = "run", .keep_last = 0}, kQuiet); });
  EXPECT_EQ(list_steps(folder.path()), (Steps{1}));
}

}  // namespace
}  // namespace trireme::checkpoint
