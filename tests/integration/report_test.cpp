/// `trireme report` on real runs: the goodput of a run that SIGKILL interrupted, next to a stopwatch,
/// and mistakes of the user.

#include <chrono>
#include <thread>

#include "core/files/file.hpp"
#include "core/timer.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;

constexpr double kPause_s = 3;
constexpr double kExit_s = 2.5;  // the exit of the processes after their last record, under load

class ReportTest : public testing::RunProgram {
 protected:
  static Json report_of(const std::string& run) {
    const Exit exit = trireme({"report", path(run).string(), "--json"});
    EXPECT_EQ(exit.code, 0) << exit.err;
    return Json::parse(exit.out)["runs"][0];
  }
};

TEST_F(ReportTest, TheGoodputOfAKilledRunAgreesWithAStopwatch) {
  const Arguments arguments{"--train.steps",      "12", "--checkpoint.every", "3",
                            "--train.eval_every", "6",  "--data.split",       "9,1"};
  const Timer stopwatch;
  const Exit killed = pretrain("killed", arguments, {.ranks = 2, .fault = "train.step:1:8:kill9"});
  ASSERT_NE(killed.code, 0);
  const double killed_s = stopwatch.seconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(kPause_s));
  const double resumed_s = stopwatch.seconds();
  const Exit resumed = pretrain("killed", arguments, {.ranks = 2});
  ASSERT_EQ(resumed.code, 0) << resumed.err;
  const double end_s = stopwatch.seconds();

  const Json report = report_of("killed");

  const Json& wall = report["wall_s"];
  double parts_s = 0;
  for (const auto& [name, seconds] : wall.items()) {
    EXPECT_GE(seconds.get<double>(), 0) << name;
    if (name != "total") parts_s += seconds.get<double>();
  }
  EXPECT_NEAR(parts_s, wall["total"].get<double>(), 1e-3);
  EXPECT_LE(wall["total"].get<double>(), end_s);
  EXPECT_NEAR(wall["total"].get<double>(), end_s, kExit_s);
  EXPECT_NEAR(wall["down"].get<double>(), resumed_s - killed_s, kExit_s);
  EXPECT_GE(wall["down"].get<double>(), kPause_s);
  EXPECT_EQ(wall["queue"], 0);
  for (const char* used : {"startup", "train", "checkpoint", "redone"})
    EXPECT_GT(wall[used].get<double>(), 0) << used;
  EXPECT_EQ(report["redone_steps"], 1) << "step 7, after the checkpoint of step 6";
  EXPECT_EQ(report["committed_lost"], 0);
  EXPECT_EQ(report["steps"], 12);
  EXPECT_EQ(report["ranks"], 2);
  ASSERT_EQ(report["attempts"].size(), 2U);
  const Json& first = report["attempts"][0];
  EXPECT_EQ(first["reason"], "failed");
  EXPECT_EQ(first["root_cause"]["rank"], 1);
  EXPECT_EQ(first["root_cause"]["kind"], "killed");
  EXPECT_NEAR(first["end"].get<double>() - first["start"].get<double>(), killed_s, kExit_s);
  EXPECT_EQ(report["attempts"][1]["from_step"], 6);
  const Json& distribution = report["distribution"];
  EXPECT_EQ(distribution["groups"]["dp"], 2);
  EXPECT_EQ(distribution["parameters"]["copies"], 2);
  EXPECT_EQ(distribution["parameters"]["identical"], true);
  EXPECT_EQ(distribution["per_rank"][0]["weights_hash"],
            distribution["per_rank"][1]["weights_hash"]);
}

TEST_F(ReportTest, WritesOneHtmlFileAndASummary) {
  ASSERT_EQ(pretrain("whole", {"--train.steps", "3"}).code, 0);
  const std::string file = path("whole.html").string();

  const Exit exit =
      trireme({"report", path("whole").string(), "--compare", path("whole").string(), "-o", file});

  ASSERT_EQ(exit.code, 0) << exit.err;
  EXPECT_NE(exit.out.find("is done: 3 of 3 steps"), std::string::npos) << exit.out;
  EXPECT_NE(exit.out.find("That is 1.00 times the throughput of the compared run"),
            std::string::npos);
  EXPECT_EQ(read_file(file).find("https:"), std::string::npos);
}

TEST_F(ReportTest, RefusesWhatIsNotARunAndAnOutputThatCannotBeWritten) {
  std::filesystem::create_directories(path("other"));
  expect_refused(trireme({"report", path("other").string()}), 3, {"is not a run directory"});
  expect_refused(trireme({"report"}), 2, {"RUN"});
  ASSERT_EQ(pretrain("small", {"--train.steps", "1"}).code, 0);
  expect_refused(
      trireme({"report", path("small").string(), "-o", path("absent/report.html").string()}), 2,
      {"absent/report.html"});
}

TEST_F(ReportTest, ProgressHasTheFormOfItsOption) {
  ASSERT_EQ(pretrain("shown", {"--train.steps", "2", "--progress", "json"}).code, 0);
  const std::string log = read_file(path("shown.log.err"));
  EXPECT_NE(log.find(R"({"progress":"train","done":1,"total":2,"unit":"steps")"), std::string::npos)
      << log;
  EXPECT_EQ(log.find('\r'), std::string::npos);
  const std::string run = path("shown").string();
  EXPECT_EQ(trireme({"checkpoint", "verify", run, "--progress", "none"}).code, 0);
  EXPECT_EQ(trireme({"checkpoint", "hash", run, "--progress", "json"}).code, 0);
  expect_refused(trireme({"checkpoint", "verify", run, "--progress", "fast"}), 2,
                 {"--progress fast", "auto, bar, log, json, none"});
}

}  // namespace
}  // namespace trireme
