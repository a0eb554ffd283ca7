/// Kills one rank with kill -9 at every failpoint of the checkpoint protocol and at six points of a
/// step, for each of 2 to 4 ranks, with synchronous and asynchronous checkpoints. After every kill,
/// the other ranks exit at once, the committed checkpoints are complete, and the next start resumes
/// from the last one with the same history, bit for bit, as a run that was never killed.
///
/// CTest runs KillMatrix.TwoAtEachPlace by default. KillMatrix.Night is a test of its own with
/// TRIREME_FAULT_SWEEPS=n (each sweep has 303 kills at other moments).

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <iomanip>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <tuple>

#include "checkpoint/format/folder.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/timer.hpp"
#include "faults/forked_run.hpp"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kLimit_s = 60;    // time limit of one run
constexpr double kPromptly_s = 5;  // limit from a kill until all ranks have exited
constexpr int kMostRanks = 4;
constexpr int kSteps = 7;

constexpr std::array kStepFailpoints{"train.step",   "train.forward",   "train.backward",
                                     "train.reduce", "train.optimizer", "train.stepped"};
/// Failpoints of the protocol that every rank reaches, one that ranks reach only with asynchronous
/// checkpoints, and those of rank 0 alone.
constexpr std::array kAllRanks{"checkpoint.stage",          "checkpoint.shard.create",
                               "checkpoint.shard.skeleton", "checkpoint.shard.write",
                               "checkpoint.shard.sync",     "checkpoint.shard.folder",
                               "checkpoint.shard.done"};
constexpr const char* kCopy = "checkpoint.copy";
constexpr std::array kRankZero{"checkpoint.mkdir",
                               "checkpoint.gathered",
                               "checkpoint.files",
                               "checkpoint.manifest",
                               "checkpoint.manifest.written",
                               "checkpoint.publish",
                               "checkpoint.published",
                               "checkpoint.done",
                               "checkpoint.prune",
                               "checkpoint.pruned"};

struct Kill {
  int ranks = 2;
  bool async = false;
  std::string point;
  int victim = 0;
  int nth = 1;

  [[nodiscard]] std::string fault() const {
    return formatted("{}:{}:{}:kill9", point, victim, nth);
  }
};

/// Returns all kills of one sweep. `shift` moves them to other moments of the run.
std::vector<Kill> sweep(int shift) {
  std::vector<Kill> kills;
  for (int ranks = 2; ranks <= kMostRanks; ++ranks) {
    for (const bool async : {false, true}) {
      int turn = shift;
      const auto moment = [&](int least, int most) {
        return least + (turn++ * 5 + shift) % (most - least + 1);
      };
      for (int victim = 0; victim < ranks; ++victim) {
        for (const char* point : kStepFailpoints) {
          const bool per_micro_step = std::string_view(point) == "train.forward" ||
                                      std::string_view(point) == "train.backward";
          const int visits = kSteps * (per_micro_step ? 12 / ranks : 1);
          kills.push_back({ranks, async, point, victim, moment(1, visits)});
        }
        for (const char* point : kAllRanks)
          kills.push_back({ranks, async, point, victim, moment(1, 3)});
        if (async) kills.push_back({ranks, async, kCopy, victim, moment(1, 3)});
      }
      for (const char* point : kRankZero) {
        const bool prunes = std::string_view(point).starts_with("checkpoint.prune");
        kills.push_back({ranks, async, point, 0, prunes ? moment(1, 2) : moment(1, 3)});
      }
    }
  }
  return kills;
}

/// Returns two kills of a sweep for each failpoint. Together they contain every victim of every
/// number of ranks, in both modes.
std::vector<Kill> two_at_each_place(const std::vector<Kill>& all) {
  std::map<std::string, std::vector<Kill>> places;
  for (const Kill& kill : all) places[kill.point].push_back(kill);
  std::vector<Kill> chosen;
  std::size_t turn = 0;
  for (const auto& [point, kills] : places) {
    for (int i = 0; i < 2; ++i) chosen.push_back(kills[turn++ * 7 % kills.size()]);
  }
  return chosen;
}

class KillMatrix : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    // Use memory: kill -9 loses no written page, so a real disk would only be slower.
    const fs::path shared = "/dev/shm";
    const fs::path base = ::access(shared.c_str(), W_OK) == 0 ? shared : fs::temp_directory_path();
    root_ = base / formatted("trireme_kills.{}", ::getpid());
    make_set(root_);
    prepare_forks();
  }

  static void TearDownTestSuite() { fs::remove_all(root_); }

  static ForkedRun run_of(const Kill& kill, const std::string& name, bool with_fault) {
    return {kill.ranks,
            root_ / "set",
            root_ / name,
            {{"train.steps", cat(kSteps)},
             {"checkpoint.every", "2"},
             {"checkpoint.keep_last", "2"},
             {"checkpoint.async", kill.async ? "true" : "false"},
             {"train.precision", kill.async ? "bf16" : "fp32"}},
            with_fault ? kill.fault() : ""};
  }

  struct Outcome {
    std::string chain;
    std::string hash;
  };

  static Outcome outcome(const fs::path& run) {
    const auto steps = checkpoint::list_steps(run / "checkpoints");
    if (steps.empty()) return {"", "no checkpoint"};
    std::ostringstream folder;
    folder << "step-" << std::setw(9) << std::setfill('0') << steps.front();
    comm::SelfCommunicator alone;
    return {read_file(run / "chain.txt"),
            checkpoint::hash_tensors(
                checkpoint::Checkpoint::open(run / "checkpoints" / folder.str()), alone)};
  }

  /// Returns the result of a run that is never killed. It is made once for each number of ranks and
  /// mode.
  static const Outcome& whole(const Kill& kill) {
    Outcome& known = whole_[{kill.ranks, kill.async}];
    if (!known.chain.empty()) return known;
    const ForkedRun run = run_of(kill, formatted("whole_{}{}", kill.ranks, kill.async), false);
    const RanksEnd end = run_forked(run, kLimit_s);
    EXPECT_EQ(end.codes, std::vector<int>(static_cast<std::size_t>(kill.ranks), 0)) << end.log;
    known = outcome(run.folder);
    EXPECT_EQ(std::count(known.chain.begin(), known.chain.end(), '\n'), kSteps);
    return known;
  }

  /// Returns the steps that rank 0 reported as saved.
  static std::int64_t last_announced(const std::string& log) {
    std::int64_t last = 0;
    const std::string mark = "/checkpoints/step-";
    for (std::size_t at = log.find("saved "); at != std::string::npos;
         at = log.find("saved ", at + 1)) {
      const std::size_t step = log.find(mark, at);
      if (step != std::string::npos && step < log.find('\n', at))
        last = std::max<std::int64_t>(last, std::stoll(log.substr(step + mark.size(), 9)));
    }
    return last;
  }

  static std::vector<std::int64_t> resumed_from(const fs::path& run) {
    std::vector<std::int64_t> steps;
    std::ifstream file(run / "metrics.jsonl");
    for (std::string line; std::getline(file, line);) {
      const Json json = parse_json(line, "metrics.jsonl");
      if (json.contains("resumed_from")) steps.push_back(json["resumed_from"]);
    }
    return steps;
  }

  static void expect_survives(const Kill& kill) {
    SCOPED_TRACE(
        formatted("{} ranks, {}{}", kill.ranks, kill.async ? "async, " : "sync, ", kill.fault()));
    const Outcome& expected = whole(kill);
    const ForkedRun killed = run_of(kill, "killed", true);
    fs::remove_all(killed.folder);  // files of a failed case
    const RanksEnd end = run_forked(killed, kLimit_s);
    ASSERT_FALSE(end.timed_out) << end.log;
    for (int rank = 0; rank < kill.ranks; ++rank) {
      const int code = end.codes[static_cast<std::size_t>(rank)];
      ASSERT_EQ(code, rank == kill.victim ? 137 : 5) << "rank " << rank << "\n" << end.log;
    }
    EXPECT_LT(end.after_first_s, kPromptly_s);
    slowest_s_ = std::max(slowest_s_, end.after_first_s);
    const auto committed = checkpoint::list_steps(killed.folder / "checkpoints");
    const std::int64_t newest = committed.empty() ? 0 : committed.front();
    ASSERT_GE(newest, last_announced(end.log)) << "a committed checkpoint is lost";

    const RanksEnd again = run_forked(run_of(kill, "killed", false), kLimit_s);

    ASSERT_FALSE(again.timed_out) << again.log;
    ASSERT_EQ(again.codes, std::vector<int>(static_cast<std::size_t>(kill.ranks), 0)) << again.log;
    const std::vector<std::int64_t> expected_resume =
        newest == 0 ? std::vector<std::int64_t>{} : std::vector<std::int64_t>{newest};
    ASSERT_EQ(resumed_from(killed.folder), expected_resume);
    const Outcome mine = outcome(killed.folder);
    ASSERT_EQ(mine.chain, expected.chain);
    ASSERT_EQ(mine.hash, expected.hash);
    if (newest > 0) {
      EXPECT_NE(again.log.find("exact: losses and weights continue bit for bit"), std::string::npos)
          << again.log;
    }
    EXPECT_EQ(again.log.find("is not bit for bit"), std::string::npos) << again.log;
    // A run that was killed after its last save makes no other save that would delete temporary
    // files.
    for (const auto& entry : fs::directory_iterator(killed.folder / "checkpoints")) {
      if (newest == kSteps) break;
      ASSERT_FALSE(entry.path().filename().string().starts_with(".")) << entry.path();
    }
    fs::remove_all(killed.folder);
    ++survived_;
  }

  static void report(double seconds) {
    std::cout << survived_ << " kills survived in " << std::lround(seconds)
              << " s; longest from a kill to the end of all ranks " << slowest_s_ << " s\n";
  }

  static inline fs::path root_;
  static inline std::map<std::pair<int, bool>, Outcome> whole_;
  static inline int survived_ = 0;
  static inline double slowest_s_ = 0;
};

TEST_F(KillMatrix, TwoAtEachPlace) {
  const Timer timer;
  const std::vector<Kill> chosen = two_at_each_place(sweep(1));
  ASSERT_EQ(chosen.size(), 48U);
  std::set<std::tuple<int, bool, int>> victims;
  for (const Kill& kill : chosen) victims.emplace(kill.ranks, kill.async, kill.victim);
  ASSERT_EQ(victims.size(), 18U) << "2 + 3 + 4 victims, two modes";
  for (const Kill& kill : chosen) {
    expect_survives(kill);
    if (HasFatalFailure()) return;
  }
  report(timer.seconds());
  EXPECT_EQ(survived_, 48);
}

TEST_F(KillMatrix, Night) {
  const char* sweeps = std::getenv("TRIREME_FAULT_SWEEPS");
  ASSERT_NE(sweeps, nullptr) << "set TRIREME_FAULT_SWEEPS=4";
  const char* first = std::getenv("TRIREME_FAULT_FIRST_SWEEP");
  const int begin = first == nullptr ? 0 : std::atoi(first);
  const Timer timer;
  int wrong = 0;
  for (int shift = begin; shift < begin + std::atoi(sweeps); ++shift) {
    for (const Kill& kill : sweep(shift)) {
      const int before = survived_;
      expect_survives(kill);
      wrong += survived_ == before ? 1 : 0;
      if (wrong > 10) FAIL() << "more than 10 kills were not survived";
    }
    report(timer.seconds());
  }
}

}  // namespace
}  // namespace trireme::testing
