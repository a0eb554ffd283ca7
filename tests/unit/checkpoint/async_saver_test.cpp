#include "checkpoint/save/async_saver.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <chrono>
#include <thread>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/process/failpoints.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::checkpoint {
namespace {

using namespace test;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

/// Arms one fault until destruction.
class Fault {
 public:
  explicit Fault(const std::string& spec) {
    ::setenv("TRIREME_FAULT", spec.c_str(), 1);
    ::setenv("TRIREME_ALLOW_FAULTS", "1", 1);
    failpoints_init(0);
  }

  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;

  ~Fault() {
    ::setenv("TRIREME_FAULT", "nowhere:*:1:throw", 1);
    failpoints_init(0);
    ::unsetenv("TRIREME_FAULT");
  }
};

void train_on(RankState& state) {
  for (auto& bytes : state.storage) std::fill(bytes.begin(), bytes.end(), std::byte{0xee});
}

StagedCheckpoint stage(const fs::path& folder, std::int64_t step, RankState& state,
                       comm::Communicator& world) {
  return stage_checkpoint(folder, step, state.state, world, {.run_id = "run", .copy = false});
}

/// The copy is slow and training continues as soon as it may. The saved state is that of the save.
TEST(AsyncSaver, SavesTheStateOfTheSaveWhileTrainingContinues) {
  const TempDirectory folder;
  const std::vector<Logical> logicals = make_logicals(5);
  const Fault slow_copy("checkpoint.copy:*:*:delay");
  comm::run_ranks(2, [&](comm::Communicator& world) {
    RankState mine = make_rank_state(logicals, world.rank(), 2, 4, true);
    AsyncSaver writer;
    writer.start(stage(folder.path(), 1, mine, world));
    EXPECT_TRUE(writer.in_flight());

    writer.wait_copied();
    train_on(mine);

    AsyncSaver::Result result = writer.finish();
    commit_checkpoint(result.staged, result.written, world);
  });
  save_layout(folder / "whole", 1, logicals, 2, 4);
  EXPECT_EQ(differing(folder / "step-000000001", folder / "whole/step-000000001"), "");
}

TEST(AsyncSaver, SavesAfterOneAnotherInTheSameMemory) {
  const TempDirectory folder;
  comm::SelfCommunicator world;
  AsyncSaver writer;
  std::size_t memory = 0;
  for (unsigned step = 1; step <= 3; ++step) {
    RankState mine = make_rank_state(make_logicals(step), 0, 1, 0, true);
    writer.start(stage(folder.path(), step, mine, world));
    writer.wait_copied();
    train_on(mine);
    AsyncSaver::Result result = writer.finish();
    commit_checkpoint(result.staged, result.written, world);
    writer.recycle(result.staged);
    EXPECT_FALSE(writer.in_flight());
    EXPECT_TRUE(memory == 0 || writer.memory_bytes() == memory);
    memory = writer.memory_bytes();
    RankState loaded = make_rank_state(make_logicals(step), 0, 1, 0, false);
    load_tensors(Checkpoint::open(folder.path() / step_directory_name(step)), loaded.state);
    EXPECT_EQ(loaded.storage, make_rank_state(make_logicals(step), 0, 1, 0, true).storage);
  }
}

/// Returns the number of page faults of this process since its start.
std::int64_t page_faults() {
  struct rusage usage {};

  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_minflt;
}

TEST(AsyncSaver, ReservedMemoryIsTheFirstCopysAndWasTouched) {
  const TempDirectory folder;
  std::vector<std::byte> bytes(std::size_t{64} << 20, std::byte{7});
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(bytes.size())};
  StateDict state;
  state.tensors.push_back(
      {"param/w", DType::u8, shape, parallel::Slice::whole(shape), bytes, true});
  comm::SelfCommunicator world;
  AsyncSaver writer(/*mb_per_s=*/1);

  writer.reserve(bytes.size());
  writer.wait_reserved();
  EXPECT_EQ(writer.memory_bytes(), bytes.size());
  [[maybe_unused]] const std::int64_t before = page_faults();
  writer.start(stage_checkpoint(folder.path(), 1, state, world, {.run_id = "r", .copy = false}));
  writer.wait_copied();

  // The 16,384 pages of 4 KiB, or 32 huge pages, were touched before.
#ifndef __SANITIZE_THREAD__  // its shadow memory is allocated page by page during the copy
  EXPECT_LT(page_faults() - before, 1000);
#endif
  EXPECT_EQ(writer.memory_bytes(), bytes.size());
  AsyncSaver::Result result = writer.finish();
  commit_checkpoint(result.staged, result.written, world);
}

TEST(AsyncSaver, AnErrorOfTheThreadIsThrownByTheCommit) {
  const TempDirectory folder;
  for (const std::string point : {"checkpoint.copy", "checkpoint.shard.sync"}) {
    const Fault fault(point + ":*:1:enospc");
    comm::SelfCommunicator world;
    RankState mine = make_rank_state(make_logicals(1), 0, 1, 0, true);
    AsyncSaver writer;
    writer.start(stage(folder.path(), 1, mine, world));
    while (!writer.done()) std::this_thread::yield();
    const AsyncSaver::Result result = writer.finish();
    message_of(ErrorKind::resource,
               [&] { commit_checkpoint(result.staged, result.written, world); });
    EXPECT_TRUE(list_steps(folder.path()).empty());
  }
}

TEST(AsyncSaver, IsSlowUntilAThreadWaits) {
  const TempDirectory folder;
  std::vector<std::byte> bytes(std::size_t{24} << 20, std::byte{7});
  const std::vector<std::int64_t> shape{static_cast<std::int64_t>(bytes.size())};
  StateDict state;
  state.tensors.push_back(
      {"param/w", DType::u8, shape, parallel::Slice::whole(shape), bytes, true});
  comm::SelfCommunicator world;
  AsyncSaver writer(/*mb_per_s=*/2);  // a limit of 12 s for some tenths of a second

  const auto begin = Clock::now();
  writer.start(stage_checkpoint(folder.path(), 1, state, world, {.run_id = "run", .copy = false}));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  EXPECT_FALSE(writer.done());
  const AsyncSaver::Result result = writer.finish();

  EXPECT_LT(seconds_since(begin), 6.0);
  commit_checkpoint(result.staged, result.written, world);
  verify_checkpoint(folder / "step-000000001");
}

TEST(WriteRateLimit, KeepsTheRate) {
  WriteRateLimit pace(1e6);
  const auto begin = Clock::now();
  for (int i = 0; i < 4; ++i) pace.spend(100'000);
  EXPECT_GE(seconds_since(begin), 0.29);  // the next call would wait for the last one
}

}  // namespace
}  // namespace trireme::checkpoint
