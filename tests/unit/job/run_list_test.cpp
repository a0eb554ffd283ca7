#include "job/watch/run_list.hpp"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "core/files/json.hpp"
#include "job/event_log.hpp"
#include "job/run_directory.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::job {
namespace {

class RunListTest : public Scratch {
 protected:
  /// Makes a run directory that an attempt of job `job` left in the state `state`.
  void make_run(const std::string& name, const std::string& job, const AttemptEnd& end) const {
    const RunDirectory run{at(name)};
    run.prepare();
    write_status(run, end.state, end.exit_code, end.step, 5);
    std::ofstream(run.config()) << "[train]\nsteps = 20\n";
    std::ofstream(run.metrics())
        << R"({"step": 8, "loss": 3.25, "time": 1, "step_time_s": 2, "tokens_per_s": 4096})"
        << "\n";
    EventLog event_log(run.event_log());
    event_log.open([] { return true; });
    event_log.start({{job, 0, 0}, {"n1"}, 2, {}, -1, std::nullopt});
    event_log.end(end);
  }

  [[nodiscard]] std::vector<std::string> names_of(const std::vector<ListedRun>& runs) const {
    std::vector<std::string> names;
    for (const ListedRun& run : runs) names.push_back(run.directory.lexically_relative(at("")));
    return names;
  }
};

TEST_F(RunListTest, FindsTheRunsThreeLevelsDeepSortedByPath) {
  make_run("b", "1", {"done", 0, 20});
  make_run("a/2/x", "2", {"failed", 5, 8});
  make_run("b/inside", "3", {"done", 0, 20});
  make_run("a/2/y/deep", "4", {"done", 0, 20});
  std::filesystem::create_directories(at("empty"));

  const std::vector<ListedRun> runs = list_runs({at("").string()}, 100);

  EXPECT_EQ(names_of(runs), (std::vector<std::string>{"a/2/x", "b"}));
  EXPECT_EQ(names_of(list_runs({at("b").string(), at("b").string()}, 100)),
            (std::vector<std::string>{"b"}));
  EXPECT_TRUE(list_runs({at("empty").string()}, 100).empty());
}

TEST_F(RunListTest, TheTableHasALinePerRun) {
  make_run("one", "7", {"done", 0, 20});
  make_run("longer", "", {"failed", 5, 8});
  const std::string root = at("").string();

  const std::string table = to_table(list_runs({root}, 100));

  EXPECT_EQ(table, formatted("run{}  state   step  loss  tok/s  ETA  checkpoint  job\n"
                             "{}longer  failed  8/20  3.25  -      -    5           -\n"
                             "{}one     done    8/20  3.25  -      -    5           7\n",
                             std::string(root.size() + 3, ' '), root, root));
}

TEST_F(RunListTest, AnUnreadableRunDoesNotHideTheOthers) {
  make_run("bad", "7", {"done", 0, 20});
  make_run("good", "8", {"done", 0, 20});
  std::filesystem::remove(RunDirectory{at("bad")}.event_log());
  std::filesystem::create_directories(RunDirectory{at("bad")}.event_log());

  const std::vector<ListedRun> runs = list_runs({at("").string()}, 100);

  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].view.state, "unreadable");
  EXPECT_NE(to_table(runs).find(runs[0].error), std::string::npos);
  const Json json = to_json(runs);
  EXPECT_EQ(json["runs"][0]["error"], runs[0].error);
  EXPECT_EQ(json["runs"][1]["state"], "done");
  EXPECT_EQ(json["runs"][1]["run"], at("good").string());
}

TEST_F(RunListTest, ASchedulerIsNotAskedAboutARunThatIsDone) {
  make_run("done", "7", {"done", 0, 20});
  make_run("stopped", "8", {"stopped", 0, 8});
  std::vector<std::string> asked;

  const auto runs = list_runs({at("").string()}, 100, [&](const std::string& id) {
    asked.push_back(id);
    return scheduler::SchedulerAnswer{};
  });

  EXPECT_EQ(asked, std::vector<std::string>{"8"});
  EXPECT_EQ(runs.size(), 2U);
}

TEST_F(RunListTest, ADirectoryThatDoesNotExistIsAnError) {
  const Error error = error_of([&] { list_runs({at("none").string()}, 100); });

  EXPECT_EQ(error.kind(), ErrorKind::data);
  EXPECT_NE(std::string(error.what()).find("Give a directory with run directories"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme::job
