#include <gtest/gtest.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>

#include "comm/thread/thread_world.hpp"
#include "core/json.hpp"
#include "train/agreement.hpp"
#include "train/run_folder.hpp"
#include "train/schedule.hpp"
#include "train/signals.hpp"
#include "train/stop_vote.hpp"
#include "unit/core/scratch.hpp"

namespace trireme {
namespace {

TEST(StopVote, OneRankStopsAllAndOneWriterHoldsAllBack) {
  run_ranks(3, [](Communicator& world) {
    StopVote vote(world);
    vote.post(false, true);
    StopVote::Result result = vote.take();
    EXPECT_FALSE(result.stop);
    EXPECT_TRUE(result.writers_done);

    vote.post(world.rank() == 2, world.rank() != 1);
    result = vote.take();
    EXPECT_TRUE(result.stop);
    EXPECT_FALSE(result.writers_done);
  });
}

TEST(Agreement, OneRankThrowsForAll) {
  run_ranks(3, [](Communicator& world) {
    const auto action = [&] {
      if (world.rank() > 0) fail(ErrorKind::data, "rank ", world.rank());
    };
    if (world.rank() == 1) {
      EXPECT_THROW(all_or_none(world, action), AgreedError);
    } else {
      try {
        all_or_none(world, action);
        ADD_FAILURE() << "nothing thrown";
      } catch (const PeerFailed& peer) {
        EXPECT_EQ(peer.code(), 3);
      }
    }
    EXPECT_NO_THROW(all_or_none(world, [] {}));
    EXPECT_EQ(broadcast_text(world, world.rank() == 0 ? "from rank 0" : "other"), "from rank 0");
    EXPECT_EQ(broadcast_text(world, ""), "");
  });
}

TEST(Signals, AreRememberedNotObeyed) {
  install_stop_signals();
  EXPECT_EQ(stop_signal(), 0);
  ::raise(SIGUSR2);
  EXPECT_EQ(stop_signal(), SIGUSR2);
  ::raise(SIGTERM);
  EXPECT_EQ(stop_signal(), SIGTERM);
  ::raise(SIGPIPE);
  ::raise(SIGINT);
  EXPECT_EQ(stop_signal(), SIGINT);
  EXPECT_EXIT(::raise(SIGINT), ::testing::ExitedWithCode(130), "");
}

TEST(Schedule, RunsEachMicroBatchForwardThenBackward) {
  EXPECT_TRUE(single_stage_schedule(0).empty());
  const std::vector<Operation> operations = single_stage_schedule(2);
  ASSERT_EQ(operations.size(), 4U);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(operations[i].micro_batch, static_cast<int>(i / 2));
    EXPECT_EQ(operations[i].kind,
              i % 2 == 0 ? Operation::Kind::forward : Operation::Kind::backward);
  }
}

class RunFolderTest : public Scratch {};

TEST_F(RunFolderTest, IsMadeOrTakenWhenEmptyOrOurs) {
  const RunFolder fresh{at("a/b/run")};
  fresh.prepare();
  EXPECT_TRUE(std::filesystem::is_directory(fresh.checkpoints()));
  fresh.prepare();

  std::filesystem::create_directories(at("empty"));
  RunFolder{at("empty")}.prepare();
  write_status(fresh, "running", 0, 3);
  std::ofstream(at("a/b/run/notes.txt")) << "a user's own";
  fresh.prepare();
  std::filesystem::create_directories(at("saved/checkpoints/step-000000003"));
  std::ofstream(at("saved/config.toml")) << "";
  RunFolder{at("saved")}.prepare();
  std::filesystem::create_directories(at("killed/checkpoints"));
  std::ofstream(at("killed/LOCK")) << "";
  RunFolder{at("killed")}.prepare();
}

TEST_F(RunFolderTest, SomethingElseIsRefusedUntouched) {
  std::filesystem::create_directories(at("photos"));
  std::ofstream(at("photos") / "cat.jpg") << "x";
  EXPECT_EQ(error_of([&] { RunFolder{at("photos")}.prepare(); }).kind(), ErrorKind::usage);
  EXPECT_FALSE(std::filesystem::exists(at("photos") / "checkpoints"));
  for (const char* file : {"config.toml", "metrics.jsonl", "status.json", "checkpoints/model.pt"}) {
    const std::filesystem::path other = at("other") / file;
    std::filesystem::create_directories(other.parent_path());
    std::ofstream(other) << "{}";
    EXPECT_EQ(error_of([&] { RunFolder{at("other")}.prepare(); }).kind(), ErrorKind::usage) << file;
    std::filesystem::remove_all(at("other"));
  }
  std::ofstream(at("file")) << "x";
  EXPECT_EQ(error_of([&] { RunFolder{at("file")}.prepare(); }).kind(), ErrorKind::usage);
  EXPECT_EQ(error_of([&] { RunFolder{"/proc/self/nothing"}.prepare(); }).kind(),
            ErrorKind::resource);
}

TEST_F(RunFolderTest, StatusSaysHowItEnded) {
  const RunFolder folder{at("run")};
  folder.prepare();
  write_status(folder, "stopped", 75, 12);
  const Json status = read_json(folder.status());
  EXPECT_EQ(status["state"], "stopped");
  EXPECT_EQ(status["exit_code"], 75);
  EXPECT_EQ(status["step"], 12);
}

TEST_F(RunFolderTest, ATreeCanBeDeletedBesideLibTorch) {
  // libtorch exports functions of std::filesystem of its own; the one of the system must be found
  // first.
  std::filesystem::create_directories(at("tree/deep"));
  std::ofstream(at("tree/deep") / "file") << "x";
  std::error_code code;
  EXPECT_EQ(std::filesystem::remove_all(at("tree"), code), 3U);
  EXPECT_FALSE(code);
}

}  // namespace
}  // namespace trireme
