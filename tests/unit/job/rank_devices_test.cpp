#include "job/doctor/rank_devices.hpp"

#include <gtest/gtest.h>

#include <cstdlib>

#include "scheduler/scheduler.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::job {
namespace {

RankDevice gpu(const std::string& host, const std::string& identity, int visible = 4) {
  return {host, identity, visible, false, true};
}

RankDevice cpu(const std::string& host, bool was_chosen, bool has_gpus) {
  return {host, "", 0, was_chosen, has_gpus};
}

TEST(RankDevices, OneGpuARankIsFine) {
  EXPECT_FALSE(device_problem({gpu("n1", "a"), gpu("n1", "b"), gpu("n2", "a"), gpu("n2", "b")}))
      << "numbers of another host are no clash";
  EXPECT_FALSE(device_problem({gpu("n1", "a", 1), gpu("n1", "b", 1)})) << "--gpus-per-task";
}

TEST(RankDevices, SharedGpusAreRefused) {
  const auto problem =
      device_problem({gpu("n1", "a", 2), gpu("n1", "b", 2), gpu("n1", "a", 2), gpu("n1", "b", 2)});

  EXPECT_EQ(problem->what, "ranks 0, 2 (host n1) would share one GPU, of 2 that each sees");
  EXPECT_TRUE(contains(problem->advice, "--ntasks-per-node")) << problem->advice;
}

TEST(RankDevices, ANodeWithoutADriverIsNamed) {
  const auto problem = device_problem(
      {gpu("n1", "a"), gpu("n1", "b"), cpu("n2", false, true), cpu("n2", false, true)});

  EXPECT_EQ(problem->what, "ranks 2, 3 (host n2) see no GPU, the others do");
  EXPECT_TRUE(contains(problem->advice, "--exclude=n2")) << problem->advice;
}

TEST(RankDevices, CpusAreUsedUnaskedOnlyWhereThereAreNoGpus) {
  EXPECT_FALSE(device_problem({cpu("n1", false, false), cpu("n1", false, false)}));
  EXPECT_FALSE(device_problem({cpu("n1", true, true), cpu("n1", true, true)}));
  const auto problem = device_problem({cpu("n1", false, true), cpu("n2", false, true)});
  EXPECT_EQ(problem->what, "this job has GPUs, but rank 0 (host n1); rank 1 (host n2) see none");
  EXPECT_TRUE(contains(problem->advice, "--train.device cpu")) << problem->advice;
}

TEST(RankDevices, GoBetweenRanksAsText) {
  const RankDevice back = rank_device_from(to_text(RankDevice{"n1", "ab", 8, true, false}));
  EXPECT_EQ(back.host, "n1");
  EXPECT_EQ(back.gpu, "ab");
  EXPECT_EQ(back.num_gpus, 8);
  EXPECT_TRUE(back.was_chosen);
  EXPECT_FALSE(back.has_gpus);
  EXPECT_EQ(error_of([] { rank_device_from("{}"); }).kind(), ErrorKind::internal);
}

TEST(RankDevices, SlurmTellsOfGpus) {
  for (const char* name : {"SLURM_STEP_GPUS", "SLURM_JOB_GPUS", "SLURM_GPUS_ON_NODE"})
    ::unsetenv(name);
  EXPECT_FALSE(scheduler::scheduler().gave_gpus());
  ::setenv("SLURM_GPUS_ON_NODE", "0", 1);
  EXPECT_FALSE(scheduler::scheduler().gave_gpus());
  ::setenv("SLURM_GPUS_ON_NODE", "2", 1);
  EXPECT_TRUE(scheduler::scheduler().gave_gpus());
  ::unsetenv("SLURM_GPUS_ON_NODE");
  ::setenv("SLURM_STEP_GPUS", "0,1", 1);
  EXPECT_TRUE(scheduler::scheduler().gave_gpus());
  ::unsetenv("SLURM_STEP_GPUS");
}

}  // namespace
}  // namespace trireme::job
