#include "job/submit/submission.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "core/files/file.hpp"
#include "job/event_log.hpp"
#include "job/run_directory.hpp"
#include "scheduler/slurm/output.hpp"
#include "scheduler/slurm/slurm.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::job {
namespace {

constexpr const char* kSinfo =
    "gpu|gpu*|64|512000|gpu:a100:8(S:0-1)|1-00:00:00|idle\n"
    "gpu|gpu*|64|512000|gpu:a100:8(S:0-1)|1-00:00:00|mix\n"
    "gpu|gpu*|64|512000|gpu:a100:8(S:0-1)|1-00:00:00|down*\n"
    "gpu|gpu*|32|256000|(null)|1-00:00:00|idle\n"
    "cpu|cpu|48|192000|(null)|infinite|idle\n"
    "garbage\n";

SubmitRequest request() {
  SubmitRequest one;
  one.task = "pretrain";
  one.arguments = {"--data", "my data"};
  one.run = "runs/a";
  one.nodes = 2;
  return one;
}

bool has(const std::vector<std::string>& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

class SubmissionTest : public Scratch {
 protected:
  void SetUp() override {
    Scratch::SetUp();
    ::unsetenv("SBATCH_PARTITION");
  }
};

TEST_F(SubmissionTest, NodesAreReadFromSinfo) {
  const auto kinds = scheduler::read_nodes(kSinfo);
  ASSERT_EQ(kinds.size(), 3U);
  const auto gpu = choose_kind(kinds, "");
  EXPECT_EQ(gpu->partition, "gpu");
  EXPECT_EQ(gpu->nodes, 2) << "one is down";
  EXPECT_EQ(gpu->gpus, 8);
  EXPECT_EQ(gpu->gpu_type, "a100");
  EXPECT_EQ(gpu->limit_s, 86400);
  const auto cpu = choose_kind(kinds, "cpu");
  EXPECT_EQ(cpu->gpus, 0);
  EXPECT_FALSE(cpu->limit_s);
  EXPECT_FALSE(choose_kind(kinds, "none"));
  EXPECT_EQ(shape_of(request(), *gpu).ranks, 8);
  EXPECT_EQ(shape_of(request(), *gpu).cpus_per_rank, 8);
  EXPECT_EQ(shape_of(request(), *cpu).ranks, 1);
  EXPECT_EQ(shape_of(request(), *cpu).cpus_per_rank, 48);
  SubmitRequest one = request();
  one.sbatch = {"--ntasks-per-node=4"};
  EXPECT_EQ(shape_of(one, *cpu).ranks, 4);
  EXPECT_EQ(shape_of(one, *cpu).cpus_per_rank, 12);
}

TEST_F(SubmissionTest, NodesThatCannotRunAJobAreNotCounted) {
  const auto count = [](const std::string& state) {
    return scheduler::read_nodes("cpu|cpu|48|192000|(null)|infinite|" + state + "\n").front().nodes;
  };
  for (const char* up : {"idle", "mix", "alloc", "comp", "plnd", "idle~", "mix-"})
    EXPECT_EQ(count(up), 1) << up;
  for (const char* bad : {"down", "drain", "drng", "drng@", "fail", "failg", "unk", "inval",
                          "maint", "resv", "boot", "boot^", "pow_dn", "idle*"})
    EXPECT_EQ(count(bad), 0) << bad;
}

TEST_F(SubmissionTest, TimesAreSlurms) {
  EXPECT_EQ(scheduler::slurm_time_s("30"), 1800);
  EXPECT_EQ(scheduler::slurm_time_s("30:15"), 1815);
  EXPECT_EQ(scheduler::slurm_time_s("4:00:00"), 14400);
  EXPECT_EQ(scheduler::slurm_time_s("2-12"), 216000);
  EXPECT_EQ(scheduler::slurm_time_s("2-12:30"), 217800);
  EXPECT_EQ(scheduler::slurm_time_s("1-00:00:01"), 86401);
  EXPECT_FALSE(scheduler::slurm_time_s("infinite"));
  for (const char* wrong : {"", "soon", "1:2:3:4", "-5", "1-x"})
    EXPECT_EQ(error_of([&] { (void)scheduler::slurm_time_s(wrong); }).kind(), ErrorKind::usage)
        << wrong;
}

TEST_F(SubmissionTest, TheCommandFitsTheNodes) {
  SubmitRequest one = request();
  one.time = "4:00:00";
  one.chain = 3;
  one.after = "17:18";
  one.sbatch = {"--qos=long"};
  std::filesystem::create_directories(at("slurm"));
  std::ofstream(at("slurm/pretrain_a100.sbatch")) << "#!/bin/bash\n";
  const auto words = scheduler::slurm().submit_words(
      order_of(one, *choose_kind(scheduler::read_nodes(kSinfo), ""), at(""), one.arguments));

  for (const char* word :
       {"--nodes=2", "--ntasks-per-node=8", "--cpus-per-task=8", "--gpus-per-node=8",
        "--time=4:00:00", "--array=1-3%1", "--dependency=afterok:17:18", "--qos=long"})
    EXPECT_TRUE(has(words, word)) << word;
  const auto script = std::find(words.begin(), words.end(), at("slurm/pretrain_a100.sbatch"));
  EXPECT_EQ((std::vector<std::string>{script + 1, words.end()}),
            (std::vector<std::string>{"--data", "my data", "--run", "runs/a"}));
}

TEST_F(SubmissionTest, LimitsOfTheClusterAreReported) {
  const scheduler::NodeKind gpu = *choose_kind(scheduler::read_nodes(kSinfo), "");
  const JobNeeds small{std::int64_t{1} << 30, 90};
  const auto ids = [&](const SubmitRequest& one, const std::string& time, const JobNeeds& needs) {
    std::vector<std::string> all;
    for (const SubmitProblem& problem : scheduler_problems(one, gpu, time, needs))
      all.push_back(problem.id);
    return all;
  };
  using Ids = std::vector<std::string>;
  EXPECT_EQ(ids(request(), "4:00:00", small), Ids{});
  EXPECT_EQ(ids(request(), "", small), Ids{});
  SubmitRequest many = request();
  many.nodes = 9;
  EXPECT_EQ(ids(many, "3-0", small), (Ids{"nodes-few", "time-long"}));
  EXPECT_EQ(ids(request(), "1", small), Ids{"time-short"});
  EXPECT_EQ(ids(request(), "", {std::int64_t{81} << 30, 90}), Ids{"memory"});
  SubmitRequest crowded = request();
  crowded.sbatch = {"--ntasks-per-node=65"};
  EXPECT_EQ(ids(crowded, "", small), Ids{"ranks-many"});
  crowded.sbatch = {"--ntasks-per-node=64"};
  EXPECT_EQ(ids(crowded, "", small), Ids{});

  const scheduler::NodeKind cpu =
      *choose_kind(scheduler::read_nodes(kSinfo), "cpu");  // 192,000 MiB for one rank
  SubmitRequest one = request();
  one.nodes = 1;
  EXPECT_TRUE(scheduler_problems(one, cpu, "", {std::int64_t{187} << 30, 0}).empty());
  EXPECT_EQ(scheduler_problems(one, cpu, "", {std::int64_t{188} << 30, 0}).size(), 1U);
}

TEST_F(SubmissionTest, ThePartitionIsSlurmsOwnOrTheOptions) {
  SubmitRequest one = request();
  EXPECT_EQ(scheduler::slurm().partition_of(one.sbatch), "");
  ::setenv("SBATCH_PARTITION", "gpu", 1);
  EXPECT_EQ(scheduler::slurm().partition_of(one.sbatch), "gpu");
  one.sbatch = {"--partition=none"};
  EXPECT_EQ(scheduler::slurm().partition_of(one.sbatch), "none");
  one.sbatch = {"-p", "cpu"};
  EXPECT_EQ(scheduler::slurm().partition_of(one.sbatch), "cpu");
  ::unsetenv("SBATCH_PARTITION");
}

TEST_F(SubmissionTest, TheScriptsTimeIsCutToThePartitions) {
  std::filesystem::create_directories(at("slurm"));
  std::ofstream(at("slurm/pretrain_a100.sbatch")) << "#!/bin/bash\n#SBATCH --time=48:00:00\n";
  scheduler::NodeKind kind = *choose_kind(scheduler::read_nodes(kSinfo), "");
  SubmitRequest one = request();
  const auto script = script_of(one, kind, at(""));
  EXPECT_EQ(script.filename(), "pretrain_a100.sbatch");
  EXPECT_EQ(time_of(one, kind, script), "1440");
  kind.limit_s.reset();
  EXPECT_EQ(time_of(one, kind, script), "48:00:00");
  one.time = "72:00:00";
  EXPECT_EQ(time_of(one, kind, script), "72:00:00");
  one.time = "soon";
  EXPECT_EQ(error_of([&] { (void)time_of(one, kind, script); }).kind(), ErrorKind::usage);

  kind.gpu_type = "h100";
  EXPECT_EQ(script_of(one, kind, at("")).filename(), "pretrain_a100.sbatch");
  std::ofstream(at("slurm/pretrain_h100.sbatch")) << "";
  EXPECT_EQ(script_of(one, kind, at("")).filename(), "pretrain_h100.sbatch");
}

TEST_F(SubmissionTest, TheScriptOfAllTasksTakesTheTaskAsItsFirstArgument) {
  std::filesystem::create_directories(at("slurm"));
  std::ofstream(at("slurm/train_a100.sbatch")) << "#!/bin/bash\n#SBATCH --time=1:00:00\n";
  std::ofstream(at("slurm/sft_a100.sbatch")) << "#!/bin/bash\n#SBATCH --time=1:00:00\n";
  const scheduler::NodeKind kind = *choose_kind(scheduler::read_nodes(kSinfo), "");
  SubmitRequest one = request();
  one.run = "runs/x";
  const auto order = [&](const char* task) {
    one.task = task;
    return order_of(one, kind, at(""), {"--data", "d"});
  };
  EXPECT_EQ(order("rl").script.filename(), "train_a100.sbatch");
  EXPECT_EQ(order("rl").arguments,
            (std::vector<std::string>{"rl", "--data", "d", "--run", "runs/x"}));
  EXPECT_EQ(order("sft").script.filename(), "sft_a100.sbatch");
  EXPECT_EQ(order("sft").arguments, (std::vector<std::string>{"--data", "d", "--run", "runs/x"}));
}

TEST_F(SubmissionTest, AJobTakesItsLastStartAndASave) {
  EXPECT_DOUBLE_EQ(overhead_of(at("none"), 4'000'000'000, 2), 60 + 10);
  std::filesystem::create_directories(at("run"));
  EventLog event_log(RunDirectory{at("run")}.event_log());
  event_log.open([] { return true; });
  event_log.start({});
  event_log.ready({3, 240});
  EXPECT_DOUBLE_EQ(overhead_of(at("run"), 0, 1), 240);
}

TEST_F(SubmissionTest, AWaitingSubmissionIsNotChanged) {
  std::filesystem::create_directories(at("home/slurm"));
  std::filesystem::create_directories(at("bin"));
  std::ofstream(at("home/slurm/env.sh")) << "old";
  std::ofstream(at("bin/trireme")) << "old";
  std::ofstream(at("run.toml")) << "old";
  SubmitRequest one = request();
  one.run = at("run");
  one.arguments = {"--config", at("run.toml"), "--config=" + at("run.toml").string(), "--x"};

  const Installation checkout{at("home"), at("home"), at("bin")};
  const Frozen first = freeze(one, checkout);
  for (const char* file : {"home/slurm/env.sh", "bin/trireme", "run.toml"})
    std::ofstream(at(file)) << "new";
  const Frozen second = freeze(one, checkout);

  EXPECT_NE(first.home, second.home);
  EXPECT_EQ(read_file(first.home / "slurm/env.sh"), "old");
  EXPECT_EQ(read_file(first.home / "build/release/bin/trireme"), "old");
  EXPECT_EQ(read_file(first.arguments[1]), "old");
  EXPECT_EQ(read_file(first.arguments[2].substr(9)), "old");
  EXPECT_EQ(first.arguments[3], "--x");
  EXPECT_EQ(read_file(second.home / "slurm/env.sh"), "new");
  EXPECT_FALSE(std::filesystem::exists(second.home / "chain-code"));
  one.chain = 2;
  EXPECT_TRUE(std::filesystem::exists(freeze(one, checkout).home / "chain-code"));
  RunDirectory{one.run}.prepare();  // the next attempt takes the directory
}

TEST_F(SubmissionTest, AJobOfAPrefixLinksItsProgramsAndKeepsTheSettingsOfTheSite) {
  for (const char* folder : {"p/share/trireme/slurm", "p/bin", "p/etc/trireme"})
    std::filesystem::create_directories(at(folder));
  for (const char* file : {"p/share/trireme/slurm/env.sh", "p/bin/trireme", "p/etc/trireme/env.sh"})
    std::ofstream(at(file)) << "old";
  std::ofstream(at("p/share/trireme/revision")) << "abc123\n";
  const auto write = std::filesystem::perms::owner_write;
  std::filesystem::permissions(at("p/share/trireme/slurm"), write,
                               std::filesystem::perm_options::remove);
  const Installation prefix = installation_of(at("p/bin"));
  EXPECT_TRUE(prefix.is_installed);
  EXPECT_EQ(prefix.home, at("p/share/trireme"));
  SubmitRequest one = request();
  one.run = at("run");

  const Frozen frozen = freeze(one, prefix);
  std::ofstream(at("p/etc/trireme/env.sh")) << "new";

  EXPECT_EQ(std::filesystem::read_symlink(frozen.home / "build/release/bin/trireme"),
            at("p/bin/trireme"));
  EXPECT_EQ(read_file(frozen.home / "etc/trireme/env.sh"), "old");
  EXPECT_EQ(read_file(frozen.home / "slurm/env.sh"), "old");
  EXPECT_NE(std::filesystem::status(frozen.home / "slurm").permissions() & write,
            std::filesystem::perms::none);
  EXPECT_EQ(read_file(frozen.home / "revision"), "abc123\n");
}

}  // namespace
}  // namespace trireme::job
