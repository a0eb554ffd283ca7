/// Kills one rank with kill -9 at every failpoint of a run. The other ranks exit at once, and the
/// next start resumes from the last committed step, bit for bit.

#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;
using testing::RunMetrics;

constexpr double kPromptly_s = 5;

struct Kill {
  const char* fault;
  int victim;
  std::int64_t committed;  // newest checkpoint after the kill, 0: none
};

class KillOneRank : public testing::RunProgram {
 protected:
  static void kill(const std::string& run, const Arguments& arguments, const Kill& one) {
    SCOPED_TRACE(one.fault);
    const Exit exit =
        pretrain(run, arguments, {.ranks = 2, .fault = one.fault, .keep_rank_codes = true});
    EXPECT_NE(exit.code, 0);
    ASSERT_EQ(rank_code(one.victim), 137) << exit.err;
    EXPECT_EQ(rank_code(1 - one.victim), 5) << exit.err;
    const auto at = [](int rank) {
      return std::filesystem::last_write_time(path("code." + std::to_string(rank)));
    };
    const double delay_s =
        std::chrono::duration<double>(at(1 - one.victim) - at(one.victim)).count();
    EXPECT_LT(delay_s, kPromptly_s);
    const std::vector<std::int64_t> saved = saved_steps(run);
    EXPECT_EQ(saved.empty() ? 0 : saved.front(), one.committed);
  }

  static void expect_survived(const std::string& run, const std::string& whole,
                              const std::vector<Kill>& kills) {
    std::vector<std::int64_t> committed;
    for (const Kill& one : kills) {
      if (one.committed > 0) committed.push_back(one.committed);
    }
    const RunMetrics mine = metrics(run);
    EXPECT_EQ(mine.resumed_from, committed);
    EXPECT_EQ(mine.losses(), metrics(whole).losses());
    EXPECT_EQ(hash(run), hash(whole));
    const Exit verify = trireme({"checkpoint", "verify", path(run).string()});
    EXPECT_EQ(verify.code, 0) << verify.err;
    for (const auto& entry : std::filesystem::directory_iterator(path(run) / "checkpoints")) {
      EXPECT_FALSE(entry.path().filename().string().starts_with("."))
          << "left over: " << entry.path();
    }
  }
};

TEST_F(KillOneRank, AtAnyMomentOfARun) {
  const Arguments arguments{"--train.steps", "10", "--checkpoint.every", "3"};
  ASSERT_EQ(pretrain("whole", arguments, {.ranks = 2}).code, 0);
  const std::vector<Kill> kills{
      {"train.step:1:2:kill9", 1, 0},              // nothing is saved yet: the run starts anew
      {"train.reduce:0:5:kill9", 0, 3},            // while gradient buckets are being sent
      {"checkpoint.shard.write:1:1:kill9", 1, 3},  // during the save of step 6
      {"checkpoint.publish:0:1:kill9", 0, 3},      // just before the rename
      {"checkpoint.published:0:1:kill9", 0, 6},    // just after the rename
      {"train.stepped:1:2:kill9", 1, 6},
  };

  for (const Kill& one : kills) kill("killed", arguments, one);
  ASSERT_EQ(pretrain("killed", arguments, {.ranks = 2}).code, 0);

  expect_survived("killed", "whole", kills);
}

TEST_F(KillOneRank, WithACheckpointBeingWrittenBehind) {
  const Arguments arguments{"--train.steps",      "10",   "--checkpoint.every", "3",
                            "--checkpoint.async", "true", "--train.precision",  "bf16",
                            "--model.dropout",    "0.1"};
  ASSERT_EQ(pretrain("whole_async", arguments, {.ranks = 2}).code, 0);
  const std::vector<Kill> kills{
      {"checkpoint.shard.done:0:1:kill9", 0, 0},  // kills the writer thread
      {"checkpoint.gathered:0:1:kill9", 0, 0},
      {"checkpoint.shard.sync:1:1:kill9", 1, 0},
      {"checkpoint.manifest:0:2:kill9", 0, 3},
  };

  for (const Kill& one : kills) kill("killed_async", arguments, one);
  ASSERT_EQ(pretrain("killed_async", arguments, {.ranks = 2}).code, 0);

  expect_survived("killed_async", "whole_async", kills);
}

}  // namespace
}  // namespace trireme
