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
#include "core/process/installation.hpp"
#include "core/process/run_main.hpp"
#include "core/timer.hpp"
#include "job/run_directory.hpp"
#include "job/submit/queue_checks.hpp"
#include "job/submit/submission.hpp"
#include "job/watch/run_view.hpp"
#include "scheduler/scheduler.hpp"
#include "train/plan/plan_run.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;

constexpr double kFilesPerCheckpoint = 8;
constexpr std::chrono::seconds kHeartbeat(60);

/// Returns the directories of this program; TRIREME_HOME replaces the directory of the job scripts.
Installation submitted_installation() {
  Installation installation = own_installation();
  if (const char* home = std::getenv("TRIREME_HOME")) installation.home = home;
  return installation;
}

std::optional<job::RunView> view_of(const job::RunDirectory& folder) {
  if (!folder.holds_run() && job::read_submissions(folder).empty()) return std::nullopt;
  return job::view_run(folder, unix_time_s(), scheduler::ask_scheduler);
}

/// Returns true if the file was written within the last minute.
bool is_recent(const fs::path& file) {
  std::error_code code;
  const auto written = fs::last_write_time(file, code);
  return !code && fs::file_time_type::clock::now() - written < kHeartbeat;
}

fs::path nearest(fs::path place) {
  std::error_code code;
  place = fs::absolute(place, code);
  while (!fs::exists(place, code) && place.has_relative_path()) place = place.parent_path();
  return place;
}

struct SubmitSettings {
  job::SubmitRequest request;
  std::vector<std::string> words;  // TASK ARGUMENTS
  bool dry_run = false;
  bool json = false;
};

using SubmitProblems = std::vector<job::SubmitProblem>;

/// Returns the request with the task, the run directory and the arguments of the training command.
job::SubmitRequest request_of(const SubmitSettings& settings) {
  job::SubmitRequest request = settings.request;
  const std::vector<std::string>& words = settings.words;
  const auto rows = train::task_rows();
  request.task = words.front();
  if (std::none_of(rows.begin(), rows.end(),
                   [&](const train::TaskRow& row) { return row.name == request.task; })) {
    fail(ErrorKind::usage, "{} is not a training command. Give one of {} after --", request.task,
         joined(rows, ", ", [](const train::TaskRow& row) { return row.name; }));
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
  if (request.run.empty()) fail(ErrorKind::usage, "--run DIR is missing after {}", request.task);
  if (request.nodes < 1) fail(ErrorKind::usage, "--nodes {}, must be 1 or more", request.nodes);
  if (request.chain < 1) fail(ErrorKind::usage, "--chain {}, must be 1 or more", request.chain);
  return request;
}

/// Returns the plan of the run and adds its problems. If the run uses CPUs, sets the GPUs of `kind`
/// to 0. Without a partition, the number of ranks is unknown, and the plan is empty.
train::RunPlan plan_of(const job::SubmitRequest& request, std::vector<std::string> words,
                       comm::Launch& launch, scheduler::NodeKind& kind, SubmitProblems& problems) {
  config::CommandLine line("trireme", "", [] { return std::string(); });
  const auto rows = train::task_rows();
  const auto row = std::find_if(rows.begin(), rows.end(), [&](const train::TaskRow& one) {
    return one.name == request.task;
  });
  const auto trainer = add_train_command(line, launch, words.front(), *row);
  std::vector<const char*> argv;
  for (const std::string& word : words) argv.push_back(word.c_str());
  train::RunPlan plan;
  const auto wrong = comm::capture([&] {
    (void)line.parse(static_cast<int>(argv.size()), argv.data());
    if (kind.partition.empty()) {
      train::check_inputs(*trainer->task, trainer->config, *trainer->keys, trainer->start);
      return;
    }
    if (trainer->config.train.device == "cpu") kind.gpus = 0;
    const job::NodeShape shape = job::shape_of(request, kind);
    plan = train::plan_run(*trainer->task, trainer->config, *trainer->keys, trainer->start,
                           static_cast<int>(request.nodes * shape.ranks), shape.gpus > 0);
  });
  if (wrong) {
    std::string what = wrong->what();
    if (what.ends_with('.')) what.pop_back();  // the advice is part of the same sentence
    problems.push_back({wrong->kind() == ErrorKind::data ? "data" : "configuration",
                        std::move(what), "correct the command"});
  }
  return plan;
}

/// Adds the problems that another job would have with jobs in the queue and with the state of the
/// run.
void check_queue(const job::SubmitRequest& request, const train::RunPlan& plan,
                 SubmitProblems& problems) {
  const auto add = [&](const SubmitProblems& more) {
    problems.insert(problems.end(), more.begin(), more.end());
  };
  const job::RunDirectory folder{request.run};
  job::RunStatus run;
  run.steps = plan.steps;
  run.steps_done = plan.steps_done;
  if (const auto view = view_of(folder)) {
    // Without a job, only the heartbeat of the lock file shows whether the run trains or was
    // killed.
    const bool is_killed = view->job.empty() && !is_recent(folder.root / "LOCK");
    run.state = is_killed ? "lost" : view->state;
    run.job = view->job;
  }
  add(job::run_problems(request, run));
  add(job::after_problems(request, scheduler::ask_scheduler));
}

/// Adds the problems of the disk: permissions, free space, free inodes.
void check_disk(const fs::path& run, std::int64_t bytes, SubmitProblems& problems) {
  const job::RunDirectory folder{run};
  std::error_code code;
  if (fs::exists(folder.root, code) && !folder.holds_run() && !folder.is_blank()) {
    problems.push_back({"run-taken",
                        formatted("{} is not empty and is not a run", folder.root.string()),
                        "choose another --run"});
  }
  const fs::path place = nearest(folder.root);
  if (::access(place.c_str(), W_OK | X_OK) != 0) {
    problems.push_back({"run-not-writable", formatted("{} cannot be written", place.string()),
                        "choose a --run in a writable directory"});
  }

  struct statvfs info {};

  if (::statvfs(place.c_str(), &info) != 0) return;
  const double space = static_cast<double>(info.f_bavail) * static_cast<double>(info.f_frsize);
  if (space < static_cast<double>(bytes)) {
    problems.push_back({"space",
                        formatted("{} are free in {}, but checkpoints need {}", format_bytes(space),
                                  place.string(), format_bytes(static_cast<double>(bytes))),
                        "lower checkpoint.keep_last, or choose another --run"});
  }
  if (info.f_files > 0 && static_cast<double>(info.f_favail) < kFilesPerCheckpoint * 10) {
    problems.push_back(
        {"inodes",
         formatted("only {} more files can be created in {}", info.f_favail, place.string()),
         "delete some files"});
  }
}

/// Prints the problems, the command `words` and the id `job` of the queued job ("": none). Without
/// `as_json`, throws Error(usage) if there are problems.
void report(bool as_json, const job::SubmitRequest& request, const train::RunPlan& plan,
            const SubmitProblems& problems, const std::vector<std::string>& words,
            const std::string& job) {
  if (as_json) {
    Json json{{"ok", problems.empty()},
              {"problems", Json::array()},
              {"sbatch", words},
              {"memory_bytes_per_rank", plan.memory_bytes_per_rank},
              {"disk_bytes", plan.disk_bytes},
              {"legs", request.chain}};
    if (!job.empty()) json["job"] = job;
    for (const job::SubmitProblem& one : problems)
      json["problems"].push_back({{"id", one.id}, {"what", one.what}, {"do", one.advice}});
    print(json_line(json));
    return;
  }
  if (!problems.empty()) {
    fail(ErrorKind::usage, "{}", joined(problems, "\n", [](const job::SubmitProblem& one) {
           return formatted("{}; {} [{}]", one.what, one.advice, one.id);
         }));
  }
  std::string text =
      formatted("memory per rank {}, checkpoints {}\n{}\n",
                format_bytes(static_cast<double>(plan.memory_bytes_per_rank)),
                format_bytes(static_cast<double>(plan.disk_bytes)), shell_line(words));
  if (!job.empty())
    text += formatted("job {}: {}, {}\n", job, scheduler::scheduler().show_command(job),
                      shell_line({"trireme", "job", "watch", request.run.string()}));
  print(text);
}

/// Returns the kind of nodes that the job would get; adds a problem if there is none.
scheduler::NodeKind kind_of(const job::SubmitRequest& request,
                            const scheduler::ClusterAnswer& cluster, SubmitProblems& problems) {
  const scheduler::SchedulerWords& names = scheduler::scheduler().words();
  if (!cluster.refused.empty()) {
    problems.push_back({formatted("{}-absent", names.id), cluster.refused,
                        "submit from a login node of the cluster"});
    return {};
  }
  const std::string partition = scheduler::scheduler().partition_of(request.sbatch);
  const auto found = job::choose_kind(cluster.kinds, partition);
  if (!found) {
    problems.push_back(
        {"partition-absent",
         partition.empty() ? std::string("this cluster has no default partition")
                           : formatted("this cluster has no partition {}", partition),
         formatted("give --sbatch --partition=NAME ({} lists partitions)", names.list_nodes)});
  }
  return found.value_or(scheduler::NodeKind{});
}

int run(const SubmitSettings& settings, comm::Launch& launch, const std::string& program) {
  const job::SubmitRequest request = request_of(settings);
  const Installation installation = submitted_installation();
  fs::path home = installation.home;
  SubmitProblems problems;
  const scheduler::ClusterAnswer cluster = scheduler::scheduler().cluster();
  scheduler::NodeKind kind = kind_of(request, cluster, problems);
  const fs::path script = job::script_of(request, kind, home);
  if (!fs::exists(script)) {
    problems.push_back(
        {"script-absent", formatted("there is no {}", script.string()),
         "set TRIREME_HOME to the directory that contains slurm/: a checkout of Trireme, or "
         "PREFIX/share/trireme"});
  }
  std::vector<std::string> trainer_words = settings.words;
  trainer_words.insert(trainer_words.begin(), program);
  const train::RunPlan plan = plan_of(request, trainer_words, launch, kind, problems);
  if (!kind.partition.empty()) {  // the number of ranks depends on the nodes
    const job::JobNeeds needs{plan.memory_bytes_per_rank,
                              job::overhead_of(request.run, plan.checkpoint_bytes, request.nodes)};
    const auto forbidden =
        job::scheduler_problems(request, kind, job::time_of(request, kind, script), needs);
    problems.insert(problems.end(), forbidden.begin(), forbidden.end());
  }
  if (cluster.refused.empty()) check_queue(request, plan, problems);
  check_disk(request.run, plan.disk_bytes, problems);
  std::vector<std::string> arguments = request.arguments;
  std::string job;
  const bool will_queue = problems.empty() && !settings.dry_run;
  if (will_queue) {
    const job::Frozen frozen = job::freeze(request, installation);
    home = frozen.home;
    arguments = frozen.arguments;
  }
  const std::vector<std::string> words =
      scheduler::scheduler().submit_words(job::order_of(request, kind, home, arguments));
  if (will_queue) {
    ::setenv("TRIREME_HOME", home.c_str(), 1);
    ::unsetenv("TRIREME_BIN");
    const scheduler::SubmitAnswer answer = scheduler::scheduler().submit(words);
    if (answer.is_queued) {
      job = answer.job;
      job::write_submission(home, {job, request.chain, unix_time_s()});
    } else {
      problems.push_back({formatted("{}-refused", scheduler::scheduler().words().submit),
                          answer.text,
                          "correct the options, or ask the administrators of the cluster"});
    }
  }
  report(settings.json, request, plan, problems, words, job);
  return problems.empty() ? kExitDone : exit_code(ErrorKind::usage);
}

}  // namespace

void add_submit_command(config::CommandLine& line, comm::Launch& launch,
                        const std::string& program) {
  const auto settings = std::make_shared<SubmitSettings>();
  line.command("submit", formatted("check a training command and submit it to {} as a job",
                                   scheduler::scheduler().words().name))
      .option("--nodes", &settings->request.nodes, "N", "number of nodes; all their GPUs are used")
      .option("--time", &settings->request.time, "T",
              "time limit in the format of sbatch: 30, 4:00:00, 2-12")
      .option(
          "--chain", &settings->request.chain, "N",
          "number of dependent jobs that run one after another, for clusters that do not requeue")
      .option("--after", &settings->request.after, "JOB",
              "start after this job has succeeded; several ids are joined by colons")
      .option("--sbatch", &settings->request.sbatch, "OPTION",
              "further option of sbatch, for example --sbatch=--qos=long")
      .flag("--dry-run", settings->dry_run, "only check; submit nothing and copy nothing")
      .flag("--json", settings->json,
            "print the problems and the submitted job as one JSON document on one line")
      .rest("COMMAND", settings->words, "training command with its arguments",
            config::Need::required)
      .example(
          "trireme submit --nodes 2 --time 12:00:00 -- pretrain --data data/pretrain --run runs/a")
      .run([settings, &launch, program] { return run(*settings, launch, program); });
}

}  // namespace trireme
