/// Profiles of a run: traces, the table of phases, and requests on a live run.

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::Exit;
using testing::RunMetrics;

constexpr std::array<const char*, 7> kPhases{"forward_s",   "backward_s",  "comm_exposed_s",
                                             "data_wait_s", "optimizer_s", "checkpoint_s",
                                             "other_s"};

class Profile : public testing::RunProgram {
 protected:
  static Json read(const std::string& run, const std::string& name) {
    return read_json(path(run) / "profile" / name);
  }

  /// Returns the names of the complete events ("ph": "X") of a trace.
  static std::multiset<std::string> range_names(const Json& trace) {
    std::multiset<std::string> names;
    for (const Json& event : trace.at("traceEvents"))
      if (event.value("ph", "") == "X") names.insert(event.at("name").get<std::string>());
    return names;
  }

  static std::size_t with(const std::multiset<std::string>& names, const std::string& start) {
    return static_cast<std::size_t>(std::count_if(
        names.begin(), names.end(), [&](const auto& name) { return name.starts_with(start); }));
  }
};

TEST_F(Profile, TracesChosenStepsOfEachRankAndTheirPhasesAddUpToTheStep) {
  const testing::Arguments common{"--train.steps", "6", "--checkpoint.every", "4"};
  ASSERT_EQ(pretrain("plain", common, {.ranks = 2}).code, 0);
  testing::Arguments arguments = common;
  arguments.insert(arguments.end(), {"--profile", "steps=3:5,ranks=0:1"});

  const Exit exit = pretrain("profiled", arguments, {.ranks = 2});

  ASSERT_EQ(exit.code, 0) << exit.err;
  EXPECT_NE(exit.err.find("profile of steps 3 to 5"), std::string::npos) << exit.err;
  EXPECT_EQ(exit.err.find("ERROR"), std::string::npos) << "Kineto writes to standard error";
  const RunMetrics run = metrics("profiled");
  EXPECT_EQ(run.losses(), metrics("plain").losses()) << "bit for bit";
  for (int rank = 0; rank < 2; ++rank) {
    const std::string file = formatted("steps-3-5/rank-0000{}", rank);
    const Json phases = read("profiled", file + ".phases.json");
    ASSERT_EQ(phases["num_steps"], 3);
    for (const Json& step : phases["steps"]) {
      double sum = 0;
      for (const char* phase : kPhases) sum += step[phase].get<double>();
      const double step_s = step["step_s"].get<double>();
      EXPECT_NEAR(sum, step_s, 1e-9) << step;
      for (const char* phase : {"forward_s", "backward_s", "optimizer_s", "data_wait_s"})
        EXPECT_GT(step[phase].get<double>(), 0) << phase;
      EXPECT_LT(step["other_s"].get<double>(), 0.5 * step_s) << "phases have no range: " << step;
      EXPECT_EQ(step["checkpoint_s"].get<double>() > 1e-4, step["step"] == 5) << step;
      if (step["step"] > 3) {  // the first one does not contain the start of the profiler
        EXPECT_NEAR(step_s, run.steps.at(step["step"])["step_time_s"].get<double>(),
                    0.02 + 0.1 * step_s);
      }
    }
    const auto names = range_names(read("profiled", file + ".trace.json"));
    EXPECT_EQ(with(names, "step "), 3U);
    EXPECT_EQ(with(names, "optimizer"), 3U);
    EXPECT_GE(with(names, "forward of micro-batch 0"), 3U);
    EXPECT_GE(with(names, "backward of micro-batch 0"), 3U);
    EXPECT_EQ(with(names, "save checkpoint"), 1U);
    EXPECT_GE(with(names, "reduce_scatter 'grads") + with(names, "all_reduce 'grads"), 3U);
    EXPECT_GE(with(names, "aten::"), 100U);
  }
  EXPECT_NE(read_file(path("profiled") / "profile/steps-3-5/phases.txt").find("data wait"),
            std::string::npos);
}

TEST_F(Profile, MayBeginWithTheFirstStepOfAnAttempt) {
  ASSERT_EQ(pretrain("first", {"--train.steps", "3", "--profile", "steps=1:2"}).code, 0);

  EXPECT_EQ(read("first", "steps-1-2/rank-00000.phases.json")["num_steps"], 2);
  EXPECT_TRUE(fs::exists(path("first") / "layout.json")) << "step 3 is recorded";
}

TEST_F(Profile, AFileProfilesALiveRunAndAWrongOneIsAWarning) {
  const auto process =
      start("live", {"--train.steps", "200000", "--metrics.sinks", "none"}, {.ranks = 2});
  const auto until = [&](const auto& is_true) {
    for (int i = 0; i < 600 && !is_true(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    return is_true();
  };
  const fs::path run = path("live");
  ASSERT_TRUE(until([&] { return fs::exists(run / "chain.txt"); }));
  std::ofstream(run / "PROFILE") << "ranks=7\n";
  ASSERT_TRUE(until([&] { return !fs::exists(run / "PROFILE"); }));
  std::ofstream(run / "PROFILE").close();

  EXPECT_TRUE(until([&] { return fs::exists(run / "profile"); }));
  const auto traces = [&] {
    std::vector<fs::path> found;
    if (!fs::exists(run / "profile")) return found;
    for (const auto& entry : fs::recursive_directory_iterator(run / "profile"))
      if (entry.path().string().ends_with(".phases.json")) found.push_back(entry.path());
    return found;
  };
  EXPECT_TRUE(until([&] { return !traces().empty(); }));
  std::ofstream(run / "STOP").close();
  const Exit exit = process->wait(kLimit_s);

  EXPECT_EQ(exit.code, 75) << exit.err;
  ASSERT_EQ(traces().size(), 1U) << "rank 0 only";
  EXPECT_EQ(traces()[0].filename(), "rank-00000.phases.json");
  EXPECT_EQ(read_json(traces()[0])["num_steps"], 3);
  EXPECT_EQ(count(exit.err, "PROFILE is ignored"), 1U) << exit.err;
  EXPECT_NE(exit.err.find("rank 7 of the profile does not exist"), std::string::npos) << exit.err;
}

TEST_F(Profile, ARangeOrARankThatDoesNotExistIsRefused) {
  expect_refused(pretrain("bad", {"--profile", "steps=13:10"}), 2,
                 {"train.profile", "steps=13:10", "steps=10:13,ranks=0"});
  expect_refused(pretrain("bad", {"--train.steps", "4", "--profile", "steps=2,ranks=3"}), 2,
                 {"rank 3", "does not exist", "1 rank"});
  expect_refused(pretrain("bad", {"--train.steps", "4", "--profile", "steps=2:9"}), 2,
                 {"step 9", "does not exist", "step 4"});
  EXPECT_FALSE(fs::exists(path("bad")));
}

}  // namespace
}  // namespace trireme
