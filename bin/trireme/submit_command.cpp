#include "bin/trireme/submit_command.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "bin/trireme/train_command.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/escape.hpp"
#include "core/files/json_lines.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "core/timer.hpp"
#include "job/run_folder.hpp"
#include "job/submission_record.hpp"
#include "job/submit/queue_checks.hpp"
#include "job/watch/run_view.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr double kFilesOfACheckpoint = 8;
constexpr std::chrono::seconds kBeat(60);

/// TRIREME_HOME, else the folder above build/PRESET/bin of this program.
fs::path checkout(const fs::path& bin) {
  if (const char* home = std::getenv("TRIREME_HOME")) return home;
  return bin.parent_path().parent_path().parent_path();
}

fs::path own_folder() {
  std::error_code code;
  return fs::read_symlink("/proc/self/exe", code).parent_path();
}

std::optional<RunView> view_of(const RunFolder& folder) {
  if (!folder.holds_run() && read_submissions(folder).empty()) return std::nullopt;
  return view_run(folder, unix_time_s(), ask_scheduler);
}

/// The file was written within the last minute.
bool beats(const fs::path& file) {
  std::error_code code;
  const auto written = fs::last_write_time(file, code);
  return !code && fs::file_time_type::clock::now() - written < kBeat;
}

fs::path nearest(fs::path place) {
  std::error_code code;
  place = fs::absolute(place, code);
  while (!fs::exists(place, code) && place.has_relative_path()) place = place.parent_path();
  return place;
}

}  // namespace

SubmitCommand::SubmitCommand(CommandLine& line, Launch& launch, std::string program)
    : launch_(launch), program_(std::move(program)) {
  line.command("submit", formatted("check a training command and put it in {}'s queue",
                                   scheduler().words().name))
      .option("--nodes", &request_.nodes, "N", "nodes, each with all of its GPUs")
      .option("--time", &request_.time, "T", "as sbatch takes it: 30, 4:00:00, 2-12")
      .option("--chain", &request_.chain, "N",
              "so many jobs one after another, for clusters that put none back in the queue")
      .option("--after", &request_.after, "JOB", "when this one is done; several joined by colons")
      .option("--sbatch", &request_.sbatch, "OPTION",
              "one more of sbatch, as in --sbatch=--qos=long")
      .flag("--dry-run", dry_run_, "queue nothing, freeze nothing")
      .flag("--json", json_, "what was found and what is queued as one JSON document on one line")
      .rest("COMMAND", words_, "a training command with its arguments", Need::required)
      .example(
          "trireme submit --nodes 2 --time 12:00:00 -- pretrain --data data/pretrain --run runs/a")
      .run([this] { return run(); });
}

void SubmitCommand::take_words() {
  const auto rows = task_rows();
  const bool is_task = std::any_of(rows.begin(), rows.end(),
                                   [&](const TaskRow& row) { return row.name == words_.front(); });
  if (!is_task) {
    fail(ErrorKind::usage, "{} is no training command: after -- comes one of {}", words_.front(),
         joined(rows, ", ", [](const TaskRow& row) { return row.name; }));
  }
  request_.task = words_.front();
  for (std::size_t i = 1; i < words_.size(); ++i) {
    if (words_[i] == "--run" && i + 1 < words_.size()) {
      request_.run = words_[++i];
    } else if (words_[i].starts_with("--run=")) {
      request_.run = words_[i].substr(6);
    } else {
      request_.arguments.push_back(words_[i]);
    }
  }
  if (request_.run.empty()) fail(ErrorKind::usage, "--run DIR is missing behind {}", request_.task);
  if (request_.nodes < 1) fail(ErrorKind::usage, "--nodes {}, must be 1 or more", request_.nodes);
  if (request_.chain < 1) fail(ErrorKind::usage, "--chain {}, must be 1 or more", request_.chain);
}

/// The run as its ranks will see it. One on CPUs takes no GPUs of the nodes.
void SubmitCommand::plan(NodeKind& kind) {
  CommandLine line("trireme", "", [] { return std::string(); });
  const auto rows = task_rows();
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const TaskRow& one) { return one.name == request_.task; });
  TrainCommand trainer(line, launch_, program_, *row);
  std::vector<const char*> argv{program_.c_str()};
  for (const std::string& word : words_) argv.push_back(word.c_str());
  const auto wrong = capture([&] {
    (void)line.parse(static_cast<int>(argv.size()), argv.data());
    if (trainer.is_on_cpu()) kind.gpus = 0;
    const NodeShape shape = shape_of(request_, kind);
    plan_ = trainer.plan(static_cast<int>(request_.nodes * shape.ranks), shape.gpus > 0);
  });
  if (wrong) {
    problems_.push_back({wrong->kind() == ErrorKind::data ? "data" : "configuration", wrong->what(),
                         "correct the command"});
  }
}

/// Adds the reasons of the queue and of the run itself against one more job.
void SubmitCommand::check_queue() {
  const auto add = [this](const std::vector<SubmitProblem>& more) {
    problems_.insert(problems_.end(), more.begin(), more.end());
  };
  const RunFolder folder{request_.run};
  RunStanding run;
  run.steps = plan_.steps;
  run.steps_done = plan_.steps_done;
  if (const auto view = view_of(folder)) {
    // Without a job, only the lock's heartbeat tells a run that trains from one that was killed.
    const bool is_killed = view->job.empty() && !beats(folder.root / "LOCK");
    run.state = is_killed ? "lost" : view->state;
    run.job = view->job;
  }
  add(run_problems(request_, run));
  add(after_problems(request_, ask_scheduler));
}

void SubmitCommand::check_disk() {
  const RunFolder folder{request_.run};
  std::error_code code;
  if (fs::exists(folder.root, code) && !folder.holds_run() && !folder.is_blank()) {
    problems_.push_back({"run-taken",
                         formatted("{} holds something that is not a run", folder.root.string()),
                         "give a new --run"});
  }
  const fs::path place = nearest(folder.root);
  if (::access(place.c_str(), W_OK | X_OK) != 0) {
    problems_.push_back({"run-not-writable", formatted("{} cannot be written", place.string()),
                         "give a --run where you may write"});
  }

  struct statvfs info {};

  if (::statvfs(place.c_str(), &info) != 0) return;
  const double space = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (space < static_cast<double>(plan_.disk_bytes)) {
    problems_.push_back(
        {"space",
         formatted("{} are free below {}, checkpoints will take {}", format_bytes(space),
                   place.string(), format_bytes(static_cast<double>(plan_.disk_bytes))),
         "lower checkpoint.keep_last, or give another --run"});
  }
  if (info.f_files > 0 && static_cast<double>(info.f_favail) < kFilesOfACheckpoint * 10) {
    problems_.push_back(
        {"inodes",
         formatted("only {} more files can be made below {}", info.f_favail, place.string()),
         "delete some files"});
  }
}

void SubmitCommand::report(const std::vector<std::string>& words, const std::string& job) const {
  if (json_) {
    Json json{{"ok", problems_.empty()},
              {"problems", Json::array()},
              {"sbatch", words},
              {"memory_bytes_per_rank", plan_.memory_bytes_per_rank},
              {"disk_bytes", plan_.disk_bytes},
              {"legs", request_.chain}};
    if (!job.empty()) json["job"] = job;
    for (const SubmitProblem& one : problems_)
      json["problems"].push_back({{"id", one.id}, {"what", one.what}, {"do", one.advice}});
    print(json_line(json));
    return;
  }
  if (!problems_.empty()) {
    fail(ErrorKind::usage, "{}", joined(problems_, "\n", [](const SubmitProblem& one) {
           return formatted("{}; {} [{}]", one.what, one.advice, one.id);
         }));
  }
  std::string text =
      formatted("a rank needs {}, checkpoints {}\n{}\n",
                format_bytes(static_cast<double>(plan_.memory_bytes_per_rank)),
                format_bytes(static_cast<double>(plan_.disk_bytes)), shell_line(words));
  if (!job.empty())
    text += formatted("job {}: {}, {}\n", job, scheduler().show_command(job),
                      shell_line({"trireme", "job", "watch", request_.run.string()}));
  print(text);
}

int SubmitCommand::run() {
  take_words();
  const fs::path bin = own_folder();
  fs::path home = checkout(bin);
  const SchedulerWords& names = scheduler().words();
  const ClusterAnswer cluster = scheduler().cluster();
  NodeKind kind;
  if (!cluster.refused.empty()) {
    problems_.push_back({formatted("{}-absent", names.id), cluster.refused,
                         "submit from a login node of the cluster"});
  } else {
    const std::string partition = scheduler().partition_of(request_.sbatch);
    const auto found = choose_kind(cluster.kinds, partition);
    if (!found) {
      problems_.push_back(
          {"partition-absent",
           partition.empty() ? std::string("this cluster has no default partition")
                             : formatted("this cluster has no partition {}", partition),
           formatted("give --sbatch --partition=NAME ({} lists them)", names.list_nodes)});
    }
    kind = found.value_or(NodeKind{});
  }
  const fs::path script = script_of(request_, kind, home);
  if (!fs::exists(script)) {
    problems_.push_back({"script-absent", formatted("there is no {}", script.string()),
                         "set TRIREME_HOME to the checkout"});
  }
  if (!kind.partition.empty()) {  // without nodes nothing can be said of ranks
    plan(kind);
    const JobNeeds needs{plan_.memory_bytes_per_rank,
                         overhead_of(request_.run, plan_.checkpoint_bytes, request_.nodes)};
    const auto forbidden =
        scheduler_problems(request_, kind, time_of(request_, kind, script), needs);
    problems_.insert(problems_.end(), forbidden.begin(), forbidden.end());
  }
  if (cluster.refused.empty()) check_queue();
  check_disk();
  std::vector<std::string> arguments = request_.arguments;
  std::string job;
  const bool will_queue = problems_.empty() && !dry_run_;
  if (will_queue) {
    const Frozen frozen = freeze(request_, home, bin);
    home = frozen.home;
    arguments = frozen.arguments;
  }
  const std::vector<std::string> words =
      scheduler().submit_words(order_of(request_, kind, home, arguments));
  if (will_queue) {
    ::setenv("TRIREME_HOME", home.c_str(), 1);
    ::unsetenv("TRIREME_BIN");
    const SubmitAnswer answer = scheduler().submit(words);
    job = answer.job;
    if (answer.is_queued) {
      write_submission(home, {job, request_.chain, unix_time_s()});
    } else {
      problems_.push_back({formatted("{}-refused", names.submit), answer.text,
                           "correct the options, or ask the site"});
    }
  }
  report(words, problems_.empty() ? job : "");
  return problems_.empty() ? kExitDone : exit_code(ErrorKind::usage);
}

}  // namespace trireme
