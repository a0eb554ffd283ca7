#include "bin/trireme/job_commands.hpp"

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

#include "core/error.hpp"
#include "core/escape.hpp"
#include "core/files/json_lines.hpp"
#include "core/process/run_main.hpp"
#include "core/timer.hpp"
#include "job/finish/finish.hpp"
#include "job/finish/refusal.hpp"
#include "job/journal.hpp"
#include "job/watch/attach.hpp"
#include "job/watch/run_view.hpp"
#include "job/watch/stacks.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme {
namespace {

constexpr std::chrono::seconds kLookAgain(2);
constexpr double kStacks_s = 5;
constexpr double kAskAgain_s = 10;

/// ask_scheduler, with answers that may be 10 s old: a watch that runs for days is no load for the
/// controller.
SchedulerQuery asked_now_and_then() {
  struct Known {
    SchedulerAnswer answer;
    Timer age;
  };

  return [known = std::make_shared<std::map<std::string, Known>>()](const std::string& id) {
    const auto found = known->find(id);
    if (found != known->end() && found->second.age.seconds() < kAskAgain_s)
      return found->second.answer;
    (*known)[id] = {ask_scheduler(id), Timer()};
    return known->at(id).answer;
  };
}

}  // namespace

JobCommands::JobCommands(CommandLine& line) {
  line.group("job", "a run as a job of a scheduler");
  line.command(
          "job finish",
          "decide what becomes of a run after its processes have ended; exits as the job shall")
      .option("--run", &run_, "DIR", "run folder", Need::required)
      .option("--srun-code", &srun_code_, "N", "exit code of srun or mpirun", Need::required)
      .option("--job-says", &job_says_, "TEXT",
              "what `scontrol -o show job` says of the job; without it, that it goes on")
      .option("--lost-nodes", &lost_nodes_, "TEXT",
              "nodes of the job that the scheduler has given up, separated by blanks")
      .flag("--may-restart", may_restart_,
            "the job keeps its nodes and can start the processes again")
      .flag("--in-chain", in_chain_, "another job goes on where this one may not be requeued")
      .flag("--dry-run", dry_run_, "write nothing")
      .example("trireme job finish --run runs/first --srun-code 143 --dry-run")
      .run([this] { return finish(); });
  line.command("job watch", "how a run stands: step, loss, time left, last checkpoint")
      .positional("RUN", &run_, "run folder")
      .flag("--once", once_, "one line, now; else a new one whenever something has changed")
      .flag("--json", json_,
            "JSON Lines: one document a line, a new one whenever something has changed")
      .example("trireme job watch runs/first --once --json")
      .run([this] { return watch(); });
  line.command("job stacks", "where all threads of all ranks stand, also of those that hang")
      .positional("RUN", &run_, "run folder")
      .option("--rank", &rank_, "N", "print this rank's; -1: none")
      .example("trireme job stacks runs/first --rank 3")
      .run([this] { return stacks(); });
  line.command("job attach", "gdb on a rank of a run, on the node where it is")
      .positional("RUN", &run_, "run folder")
      .option("--rank", &attach_rank_, "N", "which one", Need::required)
      .flag("--dry-run", dry_run_, "print the command")
      .rest("ARGUMENT", debugger_arguments_, "more for gdb", Need::optional)
      .example("trireme job attach runs/first --rank 3")
      .example("trireme job attach runs/first --rank 3 -- -batch -ex 'thread apply all bt'")
      .run([this] { return attach(); });
}

int JobCommands::finish() const {
  FinishFacts facts;
  facts.place = JobPlace::from_environment();
  facts.srun_code = static_cast<int>(srun_code_);
  facts.job = scheduler().read_job(job_says_);
  if (in_chain_) facts.job.may_requeue = true;
  std::istringstream lost(lost_nodes_);
  for (std::string node; lost >> node;) facts.lost_nodes.push_back(node);
  if (!facts.job.error_file.empty()) facts.refusal = refusal_in(facts.job.error_file);
  facts.max_failures = max_failures_from_environment();
  facts.may_restart = may_restart_;
  const Decision decision = finish_leg(RunFolder{run_}, facts, dry_run_);
  Json json = Json::object();
  put_decision(json, decision);
  json["run"] = std::filesystem::absolute(run_).string();
  json["job"] = scheduler().job_id();
  print(json_line(json));
  return decision.exit_code;
}

int JobCommands::watch() const {
  std::string shown;
  const SchedulerQuery ask = asked_now_and_then();
  while (true) {
    const RunView view = view_run(RunFolder{run_}, unix_time_s(), ask);
    const std::string text = json_ ? to_json_text(view) : to_line(view);
    const std::string news = formatted("{} {} {}", view.state, view.leg, view.step.value_or(-1));
    if (news != shown) print(text + "\n");
    shown = news;
    if (once_ || view.has_ended()) return kExitDone;
    std::this_thread::sleep_for(kLookAgain);
  }
}

int JobCommands::stacks() const {
  const auto rank = rank_ < 0 ? std::nullopt : std::optional(rank_);
  const StackReport report = ask_for_stacks(RunFolder{run_}, rank, kStacks_s);
  if (report.ranks == 0) {
    print("no leg of this run is under way\n");
    return kExitDone;
  }
  if (!report.of_rank.empty()) print(report.of_rank);
  print(formatted("{} of {} ranks wrote to {}\n", report.written.size(), report.ranks,
                  RunFolder{run_}.stacks().string()));
  return report.written.empty() ? exit_code(ErrorKind::comm) : kExitDone;
}

int JobCommands::attach() const {
  const std::vector<std::string> words =
      attach_to(RunFolder{run_}, attach_rank_, kStacks_s, debugger_arguments_);
  if (words.empty()) {
    print("no leg of this run is under way\n");
    return kExitDone;
  }
  if (dry_run_) {
    print(shell_line(words) + "\n");
    return kExitDone;
  }
  std::vector<char*> argv;
  for (const std::string& word : words) argv.push_back(const_cast<char*>(word.c_str()));
  argv.push_back(nullptr);
  ::execvp(argv.front(), argv.data());
  fail(ErrorKind::usage, "cannot start {}: {}", words.front(), std::strerror(errno));
}

}  // namespace trireme
