/// Tests the scheduler interface: the table, the choice by the environment, and the output of
/// Slurm's commands.

#include "scheduler/scheduler.hpp"

#include <gtest/gtest.h>

#include <cstdlib>
#include <set>

#include "comm/launchers.hpp"
#include "scheduler/slurm/output.hpp"
#include "scheduler/slurm/slurm.hpp"

namespace trireme::scheduler {
namespace {

using Words = std::vector<std::string>;

TEST(Schedulers, EachRowHasItsOwnNameAndJobVariable) {
  std::set<std::string> ids;
  std::set<std::string> variables;
  for (const Scheduler* one : schedulers()) {
    ids.insert(one->words().id);
    variables.insert(one->variables().job);
    const SchedulerWords& words = one->words();
    for (const char* word :
         {words.name, words.id, words.script_extension, words.launch, words.launch_advice,
          words.launch_one, words.bind_advice, words.environment_advice, words.submit, words.cancel,
          words.list_jobs, words.list_nodes, words.open_files_advice, words.locked_memory_advice})
      EXPECT_STRNE(word, "") << one->words().name;
  }
  EXPECT_EQ(ids.size(), schedulers().size());
  EXPECT_EQ(variables.size(), schedulers().size());
  EXPECT_FALSE(variables.contains(""));
}

TEST(Schedulers, TheJobsVariableChooses) {
  for (const Scheduler* one : schedulers()) {
    ::setenv(one->variables().job, "7", 1);
    EXPECT_EQ(&scheduler(), one);
    EXPECT_EQ(one->job_id(), "7");
    ::unsetenv(one->variables().job);
  }
  EXPECT_EQ(&scheduler(), schedulers().front()) << "outside a job";
  EXPECT_FALSE(job_end_from_scheduler()) << "outside a job no scheduler is queried";
}

TEST(Slurm, ATaskOfAnArrayHasTheIdOfBoth) {
  ::setenv("SLURM_JOB_ID", "9", 1);
  ::setenv("SLURM_ARRAY_JOB_ID", "7", 1);
  ::setenv("SLURM_ARRAY_TASK_ID", "2", 1);
  EXPECT_EQ(slurm().job_id(), "7_2");
  for (const char* name : {"SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID"})
    ::unsetenv(name);
  EXPECT_EQ(slurm().job_id(), "");
}

TEST(Slurm, CommandsAreWordForWord) {
  const JobOrder order{.name = "sft",
                       .nodes = 2,
                       .ranks_per_node = 8,
                       .cpus_per_rank = 4,
                       .gpus_per_node = 8,
                       .time = "30",
                       .chain = 3,
                       .after = "5:6",
                       .options = {"--qos=long"},
                       .script = "/checkout/sft.sbatch",
                       .arguments = {"--data", "a b"}};

  EXPECT_EQ(slurm().submit_words(order),
            (Words{"sbatch", "--parsable", "--job-name=sft", "--nodes=2", "--ntasks-per-node=8",
                   "--cpus-per-task=4", "--gpus-per-node=8", "--time=30", "--array=1-3%1",
                   "--output=%x-%A_%a.out", "--dependency=afterok:5:6", "--kill-on-invalid-dep=yes",
                   "--qos=long", "/checkout/sft.sbatch", "--data", "a b"}));
  EXPECT_EQ(slurm().stacks_words("7_2"), (Words{"scancel", "--signal=USR1", "7_2"}));
  EXPECT_EQ(slurm().beside_words("7", "n1", false),
            (Words{"srun", "--jobid=7", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=n1"}));
  EXPECT_EQ(slurm().beside_words("7", "n1", true).back(), "--pty");
  EXPECT_EQ(slurm().exclude_option("n1,n2"), "sbatch --exclude=n1,n2");
  EXPECT_EQ(slurm().show_command("7"), "squeue -j 7");
}

TEST(Launchers, TheRankIsKnownBeforeMain) {
  const auto rank = [](std::vector<const char*> environment) -> std::string {
    environment.push_back(nullptr);
    const char* text = comm::launched_rank(environment.data());
    return text == nullptr ? "none" : text;
  };
  EXPECT_EQ(rank({}), "none");
  EXPECT_EQ(rank({"SLURM_PROCID=3"}), "3");
  EXPECT_EQ(rank({"SLURM_PROCID=3", "PMI_RANK=2", "OMPI_COMM_WORLD_RANK=1"}), "1") << "innermost";
  EXPECT_EQ(rank({"SLURM_PROCID_OLD=3", "XPMIX_RANK=4", "PMIX_RANK"}), "none") << "other names";
}

TEST(Launchers, ATaskOfTheSchedulerIsDetected) {
  EXPECT_TRUE(comm::is_scheduler_task({{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}));
  EXPECT_FALSE(comm::is_scheduler_task({{"OMPI_COMM_WORLD_RANK", "0"}, {"SLURM_JOB_ID", "7"}}));
}

TEST(Slurm, ReadsTheTimesOfEachStartOfAJob) {
  const std::vector<JobTimes> times =
      read_job_times("100|150|200\n210|Unknown|Unknown\nno accounting\nNone|None|None\n");

  ASSERT_EQ(times.size(), 2U);
  EXPECT_EQ(times[0].submit_s, 100);
  EXPECT_EQ(times[0].start_s, 150);
  EXPECT_EQ(times[0].end_s, 200);
  EXPECT_EQ(times[1].submit_s, 210);
  EXPECT_FALSE(times[1].start_s);
}

}  // namespace
}  // namespace trireme::scheduler
