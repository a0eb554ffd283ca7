#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <optional>

#include "bin/trireme/commands.hpp"
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
#include "job/submit/submission.hpp"
#include "job/watch/run_view.hpp"
#include "scheduler/scheduler.hpp"
#include "train/plan/plan_run.hpp"

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

struct SubmitSettings {
  SubmitRequest request;
  std::vector<std::string> words;  // TASK ARGUMENTS
  bool dry_run = false;
  bool json = false;
};

using Refusals = std::vector<SubmitProblem>;

/// Returns what is asked for, with task, run folder and arguments of the training command.
SubmitRequest request_of(const SubmitSettings& settings) {
  SubmitRequest request = settings.request;
  const std::vector<std::string>& words = settings.words;
  const auto rows = task_rows();
  request.task = words.front();
  if (std::none_of(rows.begin(), rows.end(),
                   [&](const TaskRow& row) { return row.name == request.task; })) {
    fail(ErrorKind::usage, "{} is no training command: after -- comes one of {}", request.task,
         joined(rows, ", ", [](const TaskRow& row) { return row.name; }));
  }
  for (std::size_t i = 1; i < words.size(); ++i) {
    if (words[i] == "--run" && i + 1 < words.size()) {
      request.run = words[++i];
    } else if (words[i].starts_with("--run=")) {
      request.run = words[i].substr(6);
    } else {
      request.arguments.push_back(words[i]);
    }
  }
  if (request.run.empty()) fail(ErrorKind::usage, "--run DIR is missing behind {}", request.task);
  if (request.nodes < 1) fail(ErrorKind::usage, "--nodes {}, must be 1 or more", request.nodes);
  if (request.chain < 1) fail(ErrorKind::usage, "--chain {}, must be 1 or more", request.chain);
  return request;
}

/// Returns the run as its ranks will see it, and adds what is wrong with it. A run on CPUs takes no
/// GPUs of the nodes.
RunPlan plan_of(const SubmitRequest& request, std::vector<std::string> words, Launch& launch,
                NodeKind& kind, Refusals& problems) {
  CommandLine line("trireme", "", [] { return std::string(); });
  const auto rows = task_rows();
  const auto row = std::find_if(rows.begin(), rows.end(),
                                [&](const TaskRow& one) { return one.name == request.task; });
  const auto trainer = add_train_command(line, launch, words.front(), *row);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  RunPlan plan;
  const auto wrong = capture([&] {
    (void)line.parse(static_cast<int>(argv.size()), argv.data());
    if (trainer->config.train.device == "cpu") kind.gpus = 0;
    const NodeShape shape = shape_of(request, kind);
    plan = plan_run(*trainer->task, trainer->config, *trainer->keys, trainer->start,
                    static_cast<int>(request.nodes * shape.ranks), shape.gpus > 0);
  });
  if (wrong) {
    problems.push_back({wrong->kind() == ErrorKind::data ? "data" : "configuration", wrong->what(),
                        "correct the command"});
  }
  return plan;
}

/// Adds the reasons of the queue and of the run itself against one more job.
void check_queue(const SubmitRequest& request, const RunPlan& plan, Refusals& problems) {
  const auto add = [&](const Refusals& more) {
    problems.insert(problems.end(), more.begin(), more.end());
  };
  const RunFolder folder{request.run};
  RunStanding run;
  run.steps = plan.steps;
  run.steps_done = plan.steps_done;
  if (const auto view = view_of(folder)) {
    // Without a job, only the lock's heartbeat tells a run that trains from one that was killed.
    const bool is_killed = view->job.empty() && !beats(folder.root / "LOCK");
    run.state = is_killed ? "lost" : view->state;
    run.job = view->job;
  }
  add(run_problems(request, run));
  add(after_problems(request, ask_scheduler));
}

/// Adds the reasons of the disk against a run there.
void check_disk(const fs::path& run, std::int64_t bytes, Refusals& problems) {
  const RunFolder folder{run};
  std::error_code code;
  if (fs::exists(folder.root, code) && !folder.holds_run() && !folder.is_blank()) {
    problems.push_back({"run-taken",
                        formatted("{} holds something that is not a run", folder.root.string()),
                        "give a new --run"});
  }
  const fs::path place = nearest(folder.root);
  if (::access(place.c_str(), W_OK | X_OK) != 0) {
    problems.push_back({"run-not-writable", formatted("{} cannot be written", place.string()),
                        "give a --run where you may write"});
  }

  struct statvfs info {};

  if (::statvfs(place.c_str(), &info) != 0) return;
  const double space = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (space < static_cast<double>(bytes)) {
    problems.push_back(
        {"space",
         formatted("{} are free below {}, checkpoints will take {}", format_bytes(space),
                   place.string(), format_bytes(static_cast<double>(bytes))),
         "lower checkpoint.keep_last, or give another --run"});
  }
  if (info.f_files > 0 && static_cast<double>(info.f_favail) < kFilesOfACheckpoint * 10) {
    problems.push_back(
        {"inodes",
         formatted("only {} more files can be made below {}", info.f_favail, place.string()),
         "delete some files"});
  }
}

/// Prints what was found and what is queued: `words`, as job `job` unless it is empty. Throws
/// Error(usage) with the problems, unless they are wanted as JSON.
void report(bool as_json, const SubmitRequest& request, const RunPlan& plan,
            const Refusals& problems, const std::vector<std::string>& words,
            const std::string& job) {
  if (as_json) {
    Json json{{"ok", problems.empty()},
              {"problems", Json::array()},
              {"sbatch", words},
              {"memory_bytes_per_rank", plan.memory_bytes_per_rank},
              {"disk_bytes", plan.disk_bytes},
              {"legs", request.chain}};
    if (!job.empty()) json["job"] = job;
    for (const SubmitProblem& one : problems)
      json["problems"].push_back({{"id", one.id}, {"what", one.what}, {"do", one.advice}});
    print(json_line(json));
    return;
  }
  if (!problems.empty()) {
    fail(ErrorKind::usage, "{}", joined(problems, "\n", [](const SubmitProblem& one) {
           return formatted("{}; {} [{}]", one.what, one.advice, one.id);
         }));
  }
  std::string text =
      formatted("a rank needs {}, checkpoints {}\n{}\n",
                format_bytes(static_cast<double>(plan.memory_bytes_per_rank)),
                format_bytes(static_cast<double>(plan.disk_bytes)), shell_line(words));
  if (!job.empty())
    text += formatted("job {}: {}, {}\n", job, scheduler().show_command(job),
                      shell_line({"trireme", "job", "watch", request.run.string()}));
  print(text);
}

/// Returns the nodes that the job would get, and adds why there are none.
NodeKind kind_of(const SubmitRequest& request, const ClusterAnswer& cluster, Refusals& problems) {
  const SchedulerWords& names = scheduler().words();
  if (!cluster.refused.empty()) {
    problems.push_back({formatted("{}-absent", names.id), cluster.refused,
                        "submit from a login node of the cluster"});
    return {};
  }
  const std::string partition = scheduler().partition_of(request.sbatch);
  const auto found = choose_kind(cluster.kinds, partition);
  if (!found) {
    problems.push_back(
        {"partition-absent",
         partition.empty() ? std::string("this cluster has no default partition")
                           : formatted("this cluster has no partition {}", partition),
         formatted("give --sbatch --partition=NAME ({} lists them)", names.list_nodes)});
  }
  return found.value_or(NodeKind{});
}

int run(const SubmitSettings& settings, Launch& launch, const std::string& program) {
  const SubmitRequest request = request_of(settings);
  const fs::path bin = own_folder();
  fs::path home = checkout(bin);
  Refusals problems;
  RunPlan plan;
  const ClusterAnswer cluster = scheduler().cluster();
  NodeKind kind = kind_of(request, cluster, problems);
  const fs::path script = script_of(request, kind, home);
  if (!fs::exists(script)) {
    problems.push_back({"script-absent", formatted("there is no {}", script.string()),
                        "set TRIREME_HOME to the checkout"});
  }
  if (!kind.partition.empty()) {  // without nodes nothing can be said of ranks
    std::vector<std::string> words = settings.words;
    words.insert(words.begin(), program);
    plan = plan_of(request, words, launch, kind, problems);
    const JobNeeds needs{plan.memory_bytes_per_rank,
                         overhead_of(request.run, plan.checkpoint_bytes, request.nodes)};
    const auto forbidden = scheduler_problems(request, kind, time_of(request, kind, script), needs);
    problems.insert(problems.end(), forbidden.begin(), forbidden.end());
  }
  if (cluster.refused.empty()) check_queue(request, plan, problems);
  check_disk(request.run, plan.disk_bytes, problems);
  std::vector<std::string> arguments = request.arguments;
  std::string job;
  const bool will_queue = problems.empty() && !settings.dry_run;
  if (will_queue) {
    const Frozen frozen = freeze(request, home, bin);
    home = frozen.home;
    arguments = frozen.arguments;
  }
  const std::vector<std::string> words =
      scheduler().submit_words(order_of(request, kind, home, arguments));
  if (will_queue) {
    ::setenv("TRIREME_HOME", home.c_str(), 1);
    ::unsetenv("TRIREME_BIN");
    const SubmitAnswer answer = scheduler().submit(words);
    if (answer.is_queued) {
      job = answer.job;
      write_submission(home, {job, request.chain, unix_time_s()});
    } else {
      problems.push_back({formatted("{}-refused", scheduler().words().submit), answer.text,
                          "correct the options, or ask the site"});
    }
  }
  report(settings.json, request, plan, problems, words, job);
  return problems.empty() ? kExitDone : exit_code(ErrorKind::usage);
}

}  // namespace

void add_submit_command(CommandLine& line, Launch& launch, const std::string& program) {
  const auto settings = std::make_shared<SubmitSettings>();
  line.command("submit", formatted("check a training command and put it in {}'s queue",
                                   scheduler().words().name))
      .option("--nodes", &settings->request.nodes, "N", "nodes, each with all of its GPUs")
      .option("--time", &settings->request.time, "T", "as sbatch takes it: 30, 4:00:00, 2-12")
      .option("--chain", &settings->request.chain, "N",
              "so many jobs one after another, for clusters that put none back in the queue")
      .option("--after", &settings->request.after, "JOB",
              "when this one is done; several joined by colons")
      .option("--sbatch", &settings->request.sbatch, "OPTION",
              "one more of sbatch, as in --sbatch=--qos=long")
      .flag("--dry-run", settings->dry_run, "queue nothing, freeze nothing")
      .flag("--json", settings->json,
            "what was found and what is queued as one JSON document on one line")
      .rest("COMMAND", settings->words, "a training command with its arguments", Need::required)
      .example(
          "trireme submit --nodes 2 --time 12:00:00 -- pretrain --data data/pretrain --run runs/a")
      .run([settings, &launch, program] { return run(*settings, launch, program); });
}

}  // namespace trireme
