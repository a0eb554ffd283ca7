// Sets the wall clock back, or moves it back and forth. Checkpoints are ordered by step, and waits
// use the steady clock.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "checkpoint/disk/disk_writer.hpp"
#include "checkpoint/disk/run_lock.hpp"
#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/commands.hpp"
#include "checkpoint/maintenance/newest.hpp"
#include "checkpoint/maintenance/retention.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "comm/liveness/heartbeat.hpp"
#include "support/wall_clock.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme {
namespace {

using namespace test;
using Steps = std::vector<std::int64_t>;
using Wall = std::chrono::system_clock;
using Steady = std::chrono::steady_clock;

constexpr unsigned kLayout = 4;
constexpr std::int64_t kHour_s = 3600;
const checkpoint::WarningSink kQuiet = [](std::string_view) {};

double seconds_since(Steady::time_point begin) {
  return std::chrono::duration<double>(Steady::now() - begin).count();
}

/// Sets the file times that a file system would have recorded at this (wrong) time; the kernel's
/// own clock is right.
void stamp(const fs::path& step) {
  const timespec now{Wall::to_time_t(Wall::now()), 0};
  const timespec times[2] = {now, now};
  for (const auto& entry : fs::directory_iterator(step))
    ASSERT_EQ(::utimensat(AT_FDCWD, entry.path().c_str(), times, 0), 0);
  ASSERT_EQ(::utimensat(AT_FDCWD, step.c_str(), times, 0), 0);
}

/// Makes five saves and sets the clock back by an hour before each.
class ClockSetBack : public testing::Test {
 protected:
  ClockSetBack() {
    for (int step = 1; step <= 5; ++step) {
      set_wall_clock(-step * kHour_s);
      save_layout(folder_.path(), step, make_logicals(1), 2, kLayout);
      stamp(folder_ / checkpoint::step_directory_name(step));
    }
  }

  ~ClockSetBack() override { set_wall_clock(0); }

  /// Flips one byte of the first shard of `step`. The file gets the current (wrong) time.
  void damage(int step) const {
    const fs::path shard =
        folder_ / checkpoint::step_directory_name(step) / "shard-00000-of-00002.h5";
    std::string content = read_file(shard);
    content[content.size() / 2] ^= 1;
    overwrite(shard, content);
    stamp(folder_ / checkpoint::step_directory_name(step));
  }

  [[nodiscard]] std::int64_t newest_good() const {
    const auto found = checkpoint::find_newest_good(folder_.path(), kQuiet);
    return found ? found->step() : -1;
  }

  TempDirectory folder_;
};

TEST_F(ClockSetBack, IsSeenByThisProgramAndOnItsFiles) {
  const auto wall = Wall::now();
  const auto steady = Steady::now();
  const auto saved = fs::last_write_time(folder_ / checkpoint::step_directory_name(4));
  set_wall_clock(-6 * kHour_s);

  EXPECT_LT(Wall::now(), wall - std::chrono::minutes(59));
  EXPECT_GE(Steady::now(), steady);
  EXPECT_LT(std::time(nullptr), Wall::to_time_t(wall) - 59 * 60);
  EXPECT_LT(fs::last_write_time(folder_ / checkpoint::step_directory_name(5)),
            saved - std::chrono::minutes(59));
}

TEST_F(ClockSetBack, TheNewestIsTheHighestStep) {
  EXPECT_EQ(checkpoint::list_steps(folder_.path()), (Steps{5, 4, 3, 2, 1}));
  EXPECT_TRUE(read_file(folder_ / "latest").starts_with("step-000000005\n"));
  EXPECT_EQ(newest_good(), 5);
  EXPECT_EQ(checkpoint::open_newest_good(folder_.path()).step(), 5);
  comm::run_ranks(2, [&](comm::Communicator& world) {
    const auto found = checkpoint::find_newest_good(folder_.path(), world, kQuiet);
    ASSERT_TRUE(found);
    EXPECT_EQ(found->step(), 5);
  });
  const std::string list = checkpoint::list_text(checkpoint::checkpoint_list(folder_.path()));
  for (int step = 1; step < 5; ++step)
    EXPECT_LT(list.find(checkpoint::step_directory_name(step + 1)),
              list.find(checkpoint::step_directory_name(step)))
        << list;
}

TEST_F(ClockSetBack, DamageFallsBackToTheStepBefore) {
  damage(5);
  EXPECT_EQ(newest_good(), 4);
  damage(4);
  EXPECT_EQ(newest_good(), 3);
}

TEST_F(ClockSetBack, RetentionKeepsTheHighestSteps) {
  EXPECT_EQ(
      checkpoint::prune_checkpoints(folder_.path(), {.run_id = "run", .keep_last = 3}, kQuiet),
      (Steps{2, 1}));
  damage(5);
  EXPECT_EQ(
      checkpoint::prune_checkpoints(folder_.path(), {.run_id = "run", .keep_last = 1}, kQuiet),
      (Steps{3}));
  EXPECT_EQ(checkpoint::list_steps(folder_.path()), (Steps{5, 4}));
}

TEST_F(ClockSetBack, TheNextSaveSucceedsAndStoresNoTime) {
  set_wall_clock(-10 * 365 * 24 * kHour_s);
  save_layout(folder_.path(), 6, make_logicals(1), 2, kLayout);
  set_wall_clock(0);
  save_layout(folder_ / "today", 6, make_logicals(1), 2, kLayout);

  EXPECT_EQ(newest_good(), 6);
  EXPECT_TRUE(read_file(folder_ / "latest").starts_with("step-000000006\n"));
  EXPECT_EQ(differing(folder_ / "step-000000006", folder_ / "today/step-000000006"), "");
}

TEST_F(ClockSetBack, NothingAsksForTheTimeOfDay) {
  const std::uint64_t before = num_wall_clock_reads();

  save_layout(folder_.path(), 6, make_logicals(1), 2, kLayout);
  EXPECT_EQ(newest_good(), 6);
  (void)checkpoint::checkpoint_list(folder_.path());
  checkpoint::prune_checkpoints(folder_.path(), {.run_id = "run", .keep_last = 2}, kQuiet);

  EXPECT_EQ(num_wall_clock_reads(), before);
}

TEST(RestlessClock, TheWriteRateStaysTheSame) {
  const RestlessWallClock restless;
  checkpoint::WriteRateLimit pace(1e6);
  const auto begin = Steady::now();

  for (int i = 0; i < 11; ++i) pace.spend(50'000);  // the last one's time is nobody's wait

  EXPECT_GE(seconds_since(begin), 0.45);
  EXPECT_LT(seconds_since(begin), 10);
}

TEST(RestlessClock, ADeadHolderElsewhereIsTakenOverAfterItsTime) {
  const TempDirectory run;
  overwrite(run / "LOCK",
            "{\"counter\": \"5\", \"host\":\"elsewhere\",\"pid\":7,\"job_id\":\"9\","
            "\"boot_id\":\"b\",\"pid_space\":\"p\",\"start_time\":\"1\",\"nonce\":\"abc\"}\n");
  const RestlessWallClock restless;
  const auto begin = Steady::now();

  const checkpoint::RunLock lock(run.path(),
                                 {.job_id = "42", .heartbeat_s = 0.05, .takeover_s = 0.5});

  EXPECT_GE(seconds_since(begin), 0.45);
  EXPECT_LT(seconds_since(begin), 10);
}

/// Expects a timeout of rank 0, which waits for rank 1. Rank 1 runs `meanwhile` and never arrives.
void expect_a_timeout(const std::function<void()>& meanwhile) {
  comm::CommOptions options;
  options.timeout_s = 0.5;
  std::atomic<bool> over = false;
  comm::run_ranks(
      2,
      [&](comm::Communicator& world) {
        if (world.rank() == 1) {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          meanwhile();
          while (!over) std::this_thread::sleep_for(std::chrono::milliseconds(5));
          return;
        }
        const auto begin = Steady::now();
        message_of(ErrorKind::comm, [&] { world.barrier(); });
        EXPECT_GE(seconds_since(begin), 0.45);
        EXPECT_LT(seconds_since(begin), 10);
        over = true;
      },
      options);
}

TEST(RestlessClock, ACollectiveThatWaitsInVainEndsAtItsTimeout) {
  const RestlessWallClock restless;
  expect_a_timeout([] {});
}

TEST_F(ClockSetBack, WhileACollectiveWaitsMovesNoTimeout) {
  expect_a_timeout([] { set_wall_clock(-24 * kHour_s); });
}

TEST(RestlessClock, HeartbeatLosesNoRank) {
  const RestlessWallClock restless;
  comm::run_ranks(2, [](comm::Communicator& world) {
    comm::LaunchInfo launch;
    launch.rank = world.rank();
    launch.size = world.size();
    launch.hostname = "localhost";
    comm::HeartbeatOptions options;
    // The clock is read many times between reports.
    options.interval_s = world.rank() == 0 ? 0.03 : 0.3;
    options.silence_s = 5;
    options.on_loss = [](const comm::PeerLoss& loss) {
      ADD_FAILURE() << "rank " << loss.rank << " taken for lost: " << loss.reason;
    };
    const comm::Heartbeat heartbeat(world, launch, nullptr, options);

    std::this_thread::sleep_for(std::chrono::seconds(1));
    world.barrier();
  });
}

}  // namespace
}  // namespace trireme
