/// Starts under launchers: which commands accept several ranks, and which starts are refused.

#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "support/process.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::Arguments;
using testing::Exit;

class Launching : public testing::RunProgram {};

TEST_F(Launching, CommandsOfOneRankRefuseMoreAndWorkOnOne) {
  const std::string packed = set().string();
  for (const bool data : {false, true}) {
    const Arguments command = data ? Arguments{TRIREME_DATA_PROGRAM, "inspect", packed}
                                   : Arguments{TRIREME_PROGRAM, "config", "show", "--toml"};
    const std::string typed = data ? "inspect " + packed : "config show --toml";
    const Exit shown = mpirun(1, command);
    EXPECT_EQ(shown.code, 0) << shown.err;
    EXPECT_FALSE(shown.out.empty());
    const Exit refused = mpirun(2, command);
    EXPECT_EQ(refused.code, 2);
    for (const std::string& word : {std::string("this start has 2"), std::string("srun -n 1"),
                                    formatted(": trireme{} {}", data ? "-data" : "", typed)})
      EXPECT_NE(refused.err.find(word), std::string::npos) << word << " not in " << refused.err;
    EXPECT_EQ(count(refused.err, "takes one rank"), 1U) << refused.err;
    EXPECT_EQ(refused.out, "");
  }
}

/// If this MPI does not know a launcher, each process starts alone in the same directory.
TEST_F(Launching, AProcessIsRefusedIfMpiDoesNotSeeItsPeers) {
  for (const char* name : {"PALS_RANKID", "FLUX_TASK_RANK"})
    expect_refused(pretrain("none", {}, {.environment = {{name, "1"}}}), 2,
                   {formatted("{} = 1", name), "srun --mpi=pmix"});
  expect_refused(pretrain("none", {}, {.environment = {{"FLUX_JOB_SIZE", "2"}}}), 2,
                 {"FLUX_JOB_SIZE = 2"});
  EXPECT_FALSE(fs::exists(path("none")));
}

/// An interactive shell is a step with one task without a PMI, or with a PMIx server that has
/// exited.
TEST_F(Launching, AStepOfOneTaskStartsWithoutMpi) {
  const std::map<std::string, std::string> no_pmi{{"SLURM_JOB_ID", "7"},
                                                  {"SLURM_STEP_ID", "0"},
                                                  {"SLURM_PROCID", "0"},
                                                  {"SLURM_STEP_NUM_TASKS", "1"},
                                                  {"SLURM_NODELIST", "n1"}};
  std::map<std::string, std::string> used_up = no_pmi;
  used_up.insert({{"PMIX_RANK", "0"},
                  {"PMIX_NAMESPACE", "slurm.pmix.7.0"},
                  {"PMIX_SERVER_URI2", "pmix-server.1;tcp4://127.0.0.1:1"}});
  for (const auto& environment : {no_pmi, used_up}) {
    const Exit help = trireme({"help"}, {.environment = environment});
    EXPECT_EQ(help.code, 0) << help.err;
    const Exit trained = pretrain("step", {"--train.steps", "1"}, {.environment = environment});
    EXPECT_EQ(trained.code, 0) << trained.err;
    EXPECT_EQ(trained.err.find("runs as one process"), std::string::npos) << trained.err;
  }
  std::map<std::string, std::string> two = no_pmi;
  two["SLURM_STEP_NUM_TASKS"] = "2";
  EXPECT_EQ(trireme({"--version"}, {.environment = two}).code, 0);
  two["SLURM_PROCID"] = "1";  // the other task may not run the program at all
  expect_refused(trireme({"checkpoint", "list", path("step").string()}, {.environment = two}), 2,
                 {"takes one rank, this start has 2"});
}

TEST_F(Launching, AForgottenSrunIsAWarning) {
  const Exit exit = pretrain("forgotten", {"--train.steps", "1"},
                             {.environment = {{"SLURM_JOB_ID", "7"}, {"SLURM_NTASKS", "2"}}});
  EXPECT_EQ(exit.code, 0);
  EXPECT_NE(exit.err.find("2 tasks, but this command runs as one process"), std::string::npos)
      << exit.err;
  expect_refused(pretrain("none", {"--train.start_timeout_s", "0"}), 2,
                 {"train.start_timeout_s = 0, must be more than 0"});
}

/// Returns the spin count of OpenMP, which OpenMP prints at its start.
TEST_F(Launching, OpenmpWaitsBrieflyUnlessTheUserOrAJobSaysOtherwise) {
  const auto started = [](const std::vector<std::string>& variables,
                          const std::vector<std::string>& words = {"--version"}) {
    Arguments command{"/usr/bin/env", "-u", "OMP_NUM_THREADS", "OMP_DISPLAY_ENV=verbose"};
    command.insert(command.end(), variables.begin(), variables.end());
    command.emplace_back(TRIREME_PROGRAM);
    command.insert(command.end(), words.begin(), words.end());
    const Exit exit = testing::Process(command, {}, path("spin.log")).wait(60);
    EXPECT_EQ(exit.code, 0) << exit.err;
    return exit.err;
  };
  const std::string brief = "GOMP_SPINCOUNT = '1000'";
  EXPECT_NE(started({}).find(brief), std::string::npos) << started({});
  EXPECT_NE(started({}, {"pretrain", "--help"}).find(brief), std::string::npos);
  const std::string of_generation = "GOMP_SPINCOUNT = '10000'";
  EXPECT_NE(started({}, {"serve", "--help"}).find(of_generation), std::string::npos);
  EXPECT_NE(started({}, {"bench", "generate", "--help"}).find(of_generation), std::string::npos);
  EXPECT_NE(started({"GOMP_SPINCOUNT=77"}).find("GOMP_SPINCOUNT = '77'"), std::string::npos);
  for (const char* variable : {"SLURM_JOB_ID=7", "OMP_WAIT_POLICY=active", "OMP_NUM_THREADS=1"})
    EXPECT_EQ(started({variable}).find(brief), std::string::npos) << variable;
}

TEST_F(Launching, ProgramsThatItStartsDoNotInheritTheBriefWait) {
  const fs::path tools = path("tools");
  fs::create_directories(tools);
  write_file_atomic(tools / "sinfo", formatted("#!/bin/sh\nenv >'{}'\n", path("seen").string()));
  fs::permissions(tools / "sinfo", fs::perms::owner_all);
  testing::Process(
      {"/usr/bin/env", "-u", "OMP_NUM_THREADS", formatted("PATH={}:/usr/bin:/bin", tools.string()),
       TRIREME_PROGRAM, "submit", "--dry-run", "--", "pretrain", "--data", set().string(), "--run",
       path("none").string()},
      {}, path("submit.log"))
      .wait(60);
  const std::string seen = read_file(path("seen"));
  EXPECT_NE(seen.find("PATH="), std::string::npos) << "sinfo was not asked";
  EXPECT_EQ(seen.find("SPIN"), std::string::npos) << seen;
}

TEST_F(Launching, SubmitWithoutASchedulerAlsoNamesTheOtherMistakes) {
  const auto problems = [](const std::string& data) {
    const Exit exit =
        testing::Process({"/usr/bin/env", formatted("PATH={}", path("no programs").string()),
                          TRIREME_PROGRAM, "submit", "--dry-run", "--json", "--", "pretrain",
                          "--data", data, "--run", path("none").string(), "--model.preset", "tiny"},
                         {}, path("no scheduler.log"))
            .wait(60);
    EXPECT_EQ(exit.code, 2) << exit.err;
    const Json report = parse_json(exit.out, "submit");
    std::set<std::string> ids;
    for (const Json& one : report["problems"]) ids.insert(one["id"].get<std::string>());
    return ids;
  };

  const std::set<std::string> with_data = problems(set().string());
  const std::set<std::string> without_data = problems(path("missing").string());

  EXPECT_TRUE(with_data.contains("slurm-absent") && !with_data.contains("data"));
  EXPECT_TRUE(without_data.contains("slurm-absent") && without_data.contains("data"));
}

TEST_F(Launching, HelpVersionAndMistakesAreOneTextUnderMpirun) {
  for (const char* program : {TRIREME_PROGRAM, TRIREME_DATA_PROGRAM}) {
    const Exit help = mpirun(2, {program, "--help"});
    EXPECT_EQ(help.code, 0) << help.err;
    EXPECT_EQ(count(help.out, "commands:"), 1U) << help.out;
    EXPECT_EQ(count(mpirun(2, {program, "--version"}).out, "trireme"), 1U);
    const Exit wrong = mpirun(2, {program, "inspekt"});
    EXPECT_EQ(wrong.code, 2);
    EXPECT_EQ(count(wrong.err, "unknown command"), 1U) << wrong.err;
  }
  for (const Arguments& command : std::vector<Arguments>{
           {TRIREME_PROGRAM, "checkpoint", "hash", path("none").string(), "--bogus"},
           {TRIREME_DATA_PROGRAM, "pack", "--bogus", "1"}}) {
    const Exit wrong = mpirun(2, command);
    EXPECT_EQ(wrong.code, 2) << wrong.err;
    EXPECT_EQ(count(wrong.err, "'--bogus'"), 1U) << wrong.err;
  }
}

}  // namespace
}  // namespace trireme
