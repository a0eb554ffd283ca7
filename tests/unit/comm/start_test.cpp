/// Tests the start of a rank before MPI is initialized: variables of launchers, nodes of a step,
/// marks.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <filesystem>
#include <fstream>

#include "comm/launchers.hpp"
#include "comm/start_marks.hpp"
#include "comm/start_report.hpp"
#include "scheduler/slurm/output.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::comm {
namespace {

TEST(Launchers, AStepOfOneTaskIsAloneAndNeedsNoMpi) {
  for (const LauncherVariables& alone : std::vector<LauncherVariables>{
           {},
           {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_NUM_NODES", "2"}},
           {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},
           {{"SLURM_STEP_NUM_TASKS", "1"},
            {"PMIX_RANK", "0"},
            {"PMIX_NAMESPACE", "slurm.pmix.7.0"}},
           {{"OMPI_COMM_WORLD_RANK", "0"},
            {"OMPI_COMM_WORLD_SIZE", "1"},
            {"PMIX_RANK", "0"},
            {"PMIX_NAMESPACE", "1083047937"}},
           {{"PMI_RANK", "0"}, {"PMI_SIZE", "1"}, {"MPI_LOCALNRANKS", "1"}}})
    EXPECT_TRUE(is_alone(alone)) << ::testing::PrintToString(alone);
  for (const LauncherVariables& asks : std::vector<LauncherVariables>{
           {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "2"}},
           // These are mpirun in the shell of a step with one task, and daemons of mpirun on two
           // nodes.
           {{"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "1"}},
           {{"OMPI_COMM_WORLD_SIZE", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}},
           // This is another launcher in a step with one task; it gives no size.
           {{"SLURM_STEP_NUM_TASKS", "1"}, {"PMIX_RANK", "0"}, {"PMIX_NAMESPACE", "prterun-n1-5"}},
           {{"MPI_LOCALNRANKS", "1"}},
           {{"PMIX_RANK", "0"}},
           {{"PALS_RANKID", "0"}},
           {{"SLURM_STEP_NUM_TASKS", "x"}}})
    EXPECT_FALSE(is_alone(asks)) << ::testing::PrintToString(asks);
}

TEST(Launchers, TheCodeOfAStopNamesMpirunWhereItIsTheLauncher) {
  EXPECT_EQ(stopped_code_text({}), "exit code 75");
  EXPECT_EQ(stopped_code_text({{"OMPI_COMM_WORLD_SIZE", "2"}}),
            "exit code 75 (mpirun ends with 1 if the signal was sent to mpirun)");
  EXPECT_EQ(stopped_code_text({{"OMPI_COMM_WORLD_SIZE", "2"}, {"SLURM_STEP_NUM_TASKS", "2"}}),
            "exit code 75");
}

TEST(Launchers, TheInnermostLauncherTellsThePlace) {
  const auto expect = [](const LauncherVariables& variables, int rank, int size) {
    const LauncherRank place = launcher_rank(variables);
    EXPECT_EQ(place.rank, rank) << ::testing::PrintToString(variables);
    EXPECT_EQ(place.size, size) << ::testing::PrintToString(variables);
  };
  expect({}, 0, 1);
  expect({{"SLURM_PROCID", "3"}, {"SLURM_STEP_NUM_TASKS", "4"}}, 3, 4);
  expect({{"OMPI_COMM_WORLD_RANK", "1"},
          {"OMPI_COMM_WORLD_SIZE", "2"},
          {"SLURM_PROCID", "0"},
          {"SLURM_STEP_NUM_TASKS", "1"}},
         1, 2);
  expect({{"PALS_RANKID", "5"}}, 5, 6);
  expect({{"PMI_RANK", "-1"}, {"PMI_SIZE", "99999999999"}}, 0, 2147483647);
}

TEST(Launchers, TasksOfAJobThatStayIdleAreAWarning) {
  const auto warning = [](const LauncherVariables& variables) {
    return idle_tasks_warning(variables, "trireme pretrain");
  };
  const std::string batch =
      warning({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}, {"SLURM_JOB_NUM_NODES", "2"}});
  EXPECT_NE(batch.find("2 tasks"), std::string::npos) << batch;
  EXPECT_NE(batch.find("srun trireme pretrain"), std::string::npos) << batch;
  EXPECT_NE(warning({{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NUM_NODES", "3"}}).find("3 nodes"),
            std::string::npos);
  // This is the interactive step of salloc.
  EXPECT_NE(warning({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}, {"SLURM_STEP_NUM_TASKS", "1"}}),
            "");
  // These are srun -n 1 in a job with two nodes, a job with one task, mpirun, and no job.
  EXPECT_EQ(warning({{"SLURM_JOB_ID", "7"},
                     {"SLURM_NTASKS", "1"},
                     {"SLURM_JOB_NUM_NODES", "2"},
                     {"SLURM_STEP_NUM_TASKS", "1"}}),
            "");
  EXPECT_EQ(warning({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "1"}, {"SLURM_JOB_NUM_NODES", "1"}}),
            "");
  EXPECT_EQ(warning({{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}, {"OMPI_COMM_WORLD_SIZE", "1"}}),
            "");
  EXPECT_EQ(warning({{"SLURM_NTASKS", "2"}}), "");
}

TEST(StepNodes, NamesAreExpandedAsSlurmWritesThem) {
  using Names = std::vector<std::string>;
  EXPECT_EQ(scheduler::expand_nodes("n1"), Names{"n1"});
  EXPECT_EQ(scheduler::expand_nodes("n[1-2,09-11],m3"),
            (Names{"n1", "n2", "n09", "n10", "n11", "m3"}));
  EXPECT_EQ(scheduler::expand_nodes("r[0-1]n[0-1]x"), (Names{"r0n0x", "r0n1x", "r1n0x", "r1n1x"}));
  for (const char* wrong : {"", "n[1-", "n[a-b]", "n[1-2-3]", "n1,,n2", "n[0-99999999999]"})
    EXPECT_TRUE(scheduler::expand_nodes(wrong).empty()) << wrong;

  const auto nodes = scheduler::step_nodes("n[1-3]", "2(x2),1");
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_EQ(nodes[1].tasks, 2);
  EXPECT_EQ(nodes[2].tasks, 1);
  for (const char* wrong : {"2(x3),1", "2", "x", "", "2(x9999999999)", "-1(x3)"})
    EXPECT_TRUE(scheduler::step_nodes("n[1-3]", wrong).empty()) << wrong;
}

StartView view_of(const std::map<int, StartMark>& marks) {
  return {1, 4, "n1", 300, 30, marks, {{"n1", 2}, {"n2", 2}}};
}

TEST(StartReport, MissingRanksAndTheirNodesAreNamed) {
  const StartFailure failure =
      report_start(view_of({{0, {"n1.example", 5, 0}}, {1, {"n1.example", 6, 1}}}));

  EXPECT_NE(failure.message.find("2 of 4 ranks have not started: ranks 2-3, on node n2 (0 of 2"),
            std::string::npos)
      << failure.message;
  EXPECT_NE(failure.message.find("300 s (train.start_timeout_s)"), std::string::npos);
  EXPECT_EQ(failure.missing_rank, 2);
  EXPECT_EQ(failure.missing_node, "n2");
}

TEST(StartReport, ARankThatBeganAndStoppedIsNamedWithItsHost) {
  const StartFailure failure = report_start(
      view_of({{0, {"n1", 5, 0}}, {1, {"n1", 6, 1}}, {2, {"n2", 7, 0}}, {3, {"n2", 8, 31}}}));

  EXPECT_NE(failure.message.find("rank 3 (host n2, pid 8)"), std::string::npos) << failure.message;
  EXPECT_EQ(failure.missing_rank, 3);
  EXPECT_EQ(failure.missing_node, "n2");
}

TEST(StartReport, WithoutMarksOrMissingRanksTheNextStepIsSaid) {
  const StartFailure none = report_start(view_of({}));
  EXPECT_NE(none.message.find("rank 1 of 4 ranks (host n1)"), std::string::npos) << none.message;
  EXPECT_EQ(none.missing_rank, -1);
  const StartFailure all = report_start(
      view_of({{0, {"n1", 5, 0}}, {1, {"n1", 6, 0}}, {2, {"n2", 7, 0}}, {3, {"n2", 8, 0}}}));
  EXPECT_NE(all.message.find("OMPI_MCA_btl_tcp_if_include"), std::string::npos) << all.message;
  EXPECT_EQ(all.missing_rank, -1);
}

TEST(StartReport, ManyRanksAreRanges) {
  EXPECT_EQ(ranges_text({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
  std::vector<int> odd;
  for (int i = 1; i < 100; i += 2) odd.push_back(i);
  EXPECT_EQ(ranges_text(odd).substr(0, 6), "1, 3, ");
  EXPECT_NE(ranges_text(odd).find("39 and 30 more"), std::string::npos) << ranges_text(odd);
}

class StartMarksTest : public Scratch {};

TEST_F(StartMarksTest, RanksSeeEachOtherAndOneReports) {
  const LauncherVariables variables{{"SLURM_JOB_ID", "7"}, {"PMIX_NAMESPACE", "slurm.pmix.7.0"}};
  const auto place = at("new") / "deep" / "run.start";
  StartMarks first(place, variables, 0);
  StartMarks third(place, variables, 2);
  StartMarks other(place, {{"SLURM_JOB_ID", "8"}}, 1);  // another start of the same run

  ASSERT_TRUE(first.put("n1", 5));
  ASSERT_TRUE(third.put("n2", 6));
  ASSERT_TRUE(other.put("n9", 7));
  const auto file = place / "start-7-slurm.pmix.7.0" / "rank-2";
  const timespec old[2]{{1000, 0}, {1000, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), old, 0), 0) << file;
  first.refresh();

  const auto marks = first.read();
  ASSERT_EQ(marks.size(), 2U);
  EXPECT_EQ(marks.at(0).node, "n1");
  EXPECT_EQ(marks.at(2).pid, 6);
  EXPECT_LT(marks.at(0).behind_s, 1);
  EXPECT_GT(marks.at(2).behind_s, 1000);
  third.refresh();
  EXPECT_LT(third.read().at(2).behind_s, 10);
  EXPECT_TRUE(third.claim_report());
  EXPECT_FALSE(first.claim_report());

  third.remove();
  EXPECT_TRUE(std::filesystem::exists(place));
  first.remove();
  EXPECT_FALSE(std::filesystem::exists(at("new"))) << "empty directories stay behind";
}

TEST_F(StartMarksTest, WithoutAPlaceThereAreNoMarks) {
  StartMarks none("", {}, 0);
  EXPECT_FALSE(none.put("n1", 5));
  EXPECT_TRUE(none.read().empty());
  none.remove();
  StartMarks refused("/proc/self/run.start", {}, 0);
  EXPECT_FALSE(refused.put("n1", 5));
  EXPECT_TRUE(refused.read().empty());
  refused.remove();
}

}  // namespace
}  // namespace trireme::comm
