#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <thread>

#include "bin/trireme/commands.hpp"
#include "core/error.hpp"
#include "core/escape.hpp"
#include "core/files/json_lines.hpp"
#include "core/process/run_main.hpp"
#include "core/timer.hpp"
#include "job/event_log.hpp"
#include "job/finish/finish.hpp"
#include "job/watch/run_list.hpp"
#include "job/watch/run_view.hpp"
#include "job/watch/stacks.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme {
namespace {

constexpr std::chrono::seconds kLookAgain(2);
constexpr double kStacks_s = 5;
constexpr double kAskAgain_s = 10;

/// Returns an ask_scheduler that reuses answers for 10 s, so that a long `job watch` puts no load
/// on the controller.
scheduler::SchedulerQuery cached_query() {
  struct Known {
    scheduler::SchedulerAnswer answer;
    Timer age;
  };

  return [known = std::make_shared<std::map<std::string, Known>>()](const std::string& id) {
    const auto found = known->find(id);
    if (found != known->end() && found->second.age.seconds() < kAskAgain_s)
      return found->second.answer;
    (*known)[id] = {scheduler::ask_scheduler(id), Timer()};
    return known->at(id).answer;
  };
}

/// The options of all `job` commands.
struct JobSettings {
  std::string run;
  std::vector<std::string> places{"runs"};
  std::int64_t srun_code = 0;
  std::string job_says;
  std::string lost_nodes;
  bool may_restart = false;
  bool in_chain = false;
  bool dry_run = false;
  bool once = false;
  bool json = false;
  std::int64_t rank = -1;
  std::int64_t attach_rank = 0;
  std::vector<std::string> debugger_arguments;
};

int finish(const JobSettings& settings) {
  job::FinishFacts facts;
  facts.attempt_id = job::AttemptId::from_environment();
  facts.srun_code = static_cast<int>(settings.srun_code);
  facts.job = scheduler::scheduler().read_job(settings.job_says);
  if (settings.in_chain) facts.job.may_requeue = true;
  std::istringstream lost(settings.lost_nodes);
  for (std::string node; lost >> node;) facts.lost_nodes.push_back(node);
  if (!facts.job.error_file.empty()) facts.refusal = job::last_error_in(facts.job.error_file);
  facts.max_failures = job::max_failures_from_environment();
  facts.may_restart = settings.may_restart;
  const job::Decision decision =
      job::finish_attempt(job::RunDirectory{settings.run}, facts, settings.dry_run);
  Json json = Json::object();
  job::put_decision(json, decision);
  json["run"] = std::filesystem::absolute(settings.run).string();
  json["job"] = scheduler::scheduler().job_id();
  print(json_line(json));
  return decision.exit_code;
}

int watch(const JobSettings& settings) {
  std::string shown;
  const scheduler::SchedulerQuery ask = cached_query();
  while (true) {
    const job::RunView view = job::view_run(job::RunDirectory{settings.run}, unix_time_s(), ask);
    const std::string text = settings.json ? job::to_json(view).dump() : job::to_line(view);
    const std::string news =
        formatted("{} {} {}", view.state, view.attempt, view.step.value_or(-1));
    if (news != shown) print(text + "\n");
    shown = news;
    if (settings.once || view.has_ended()) return kExitDone;
    std::this_thread::sleep_for(kLookAgain);
  }
}

int list(const JobSettings& settings) {
  const std::vector<job::ListedRun> runs =
      job::list_runs(settings.places, unix_time_s(), cached_query());
  if (settings.json)
    print(json_line(job::to_json(runs)));
  else if (runs.empty())
    print("no runs\n");
  else
    print(job::to_table(runs));
  return kExitDone;
}

int stacks(const JobSettings& settings) {
  const auto rank = settings.rank < 0 ? std::nullopt : std::optional(settings.rank);
  const job::StackReport report =
      job::ask_for_stacks(job::RunDirectory{settings.run}, rank, kStacks_s);
  if (report.ranks == 0) {
    print("no attempt of this run is running\n");
    return kExitDone;
  }
  if (!report.of_rank.empty()) print(report.of_rank);
  print(formatted("{} of {} ranks wrote to {}\n", report.written.size(), report.ranks,
                  job::RunDirectory{settings.run}.stacks().string()));
  return report.written.empty() ? exit_code(ErrorKind::comm) : kExitDone;
}

int attach(const JobSettings& settings) {
  const std::vector<std::string> words =
      job::attach_to(job::RunDirectory{settings.run}, settings.attach_rank, kStacks_s,
                     settings.debugger_arguments);
  if (words.empty()) {
    print("no attempt of this run is running\n");
    return kExitDone;
  }
  if (settings.dry_run) {
    print(shell_line(words) + "\n");
    return kExitDone;
  }
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  fail(ErrorKind::usage, "cannot start {}: {}", words.front(), std::strerror(errno));
}

}  // namespace

void add_job_commands(config::CommandLine& line) {
  const auto settings = std::make_shared<JobSettings>();
  line.group("job", "manage a run as a job of the scheduler");
  line.command(
          "job finish",
          "decide whether Slurm should requeue a job after its processes exit (used by the job "
          "scripts)")
      .option("--run", &settings->run, "DIR", "run directory", config::Need::required)
      .option("--srun-code", &settings->srun_code, "N", "exit code of srun or mpirun",
              config::Need::required)
      .option("--job-says", &settings->job_says, "TEXT",
              "output of `scontrol -o show job` for the job; without it the job counts as running")
      .option("--lost-nodes", &settings->lost_nodes, "TEXT",
              "failed nodes of the job, separated by spaces")
      .flag("--may-restart", settings->may_restart,
            "the job keeps its nodes and can restart the processes")
      .flag("--in-chain", settings->in_chain,
            "a dependent job resumes the run if this job may not be requeued")
      .flag("--dry-run", settings->dry_run, "write no files")
      .example("trireme job finish --run runs/first --srun-code 143 --dry-run")
      .run([settings] { return finish(*settings); });
  line.command("job watch", "show a run's status: step, loss, remaining time, last checkpoint")
      .positional("RUN", &settings->run, "run directory")
      .flag("--once", settings->once, "print one line and exit; default: a line at each change")
      .flag("--json", settings->json, "print JSON Lines instead of text")
      .example("trireme job watch runs/first --once --json")
      .run([settings] { return watch(*settings); });
  line.command("job list", "show state, step and loss of all runs below directories")
      .positional("DIR", &settings->places,
                  "directories with runs, searched three levels deep; default: runs",
                  config::Need::optional)
      .flag("--json", settings->json, "print one JSON object instead of a table")
      .example("trireme job list runs")
      .run([settings] { return list(*settings); });
  line.command("job stacks",
               "write the stack traces of all threads of all ranks, also if they hang")
      .positional("RUN", &settings->run, "run directory")
      .option("--rank", &settings->rank, "N", "print the stack traces of this rank; -1: none")
      .example("trireme job stacks runs/first --rank 3")
      .run([settings] { return stacks(*settings); });
  line.command("job attach", "attach gdb to one rank of a run, on the node of that rank")
      .positional("RUN", &settings->run, "run directory")
      .option("--rank", &settings->attach_rank, "N", "rank to attach to", config::Need::required)
      .flag("--dry-run", settings->dry_run, "only print the command")
      .rest("ARGUMENT", settings->debugger_arguments, "further arguments for gdb",
            config::Need::optional)
      .example("trireme job attach runs/first --rank 3")
      .example("trireme job attach runs/first --rank 3 -- -batch -ex 'thread apply all bt'")
      .run([settings] { return attach(*settings); });
}

}  // namespace trireme
