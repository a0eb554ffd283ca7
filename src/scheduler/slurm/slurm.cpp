#include "scheduler/slurm/slurm.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>

#include "core/error.hpp"
#include "core/number.hpp"
#include "core/process/run_program.hpp"
#include "scheduler/slurm/output.hpp"

namespace trireme::scheduler {
namespace {

constexpr double kJobAnswer_s = 10;
constexpr double kAnswer_s = 60;  // for sinfo and sbatch

constexpr SchedulerVariables kVariables{
    .job = "SLURM_JOB_ID",
    .job_tasks = "SLURM_NTASKS",
    .job_nodes = "SLURM_JOB_NUM_NODES",
    .job_start = "SLURM_JOB_START_TIME",
    .job_end = "SLURM_JOB_END_TIME",
    .restarts = "SLURM_RESTART_COUNT",
    .step = "SLURM_STEP_ID",
    .rank = "SLURM_PROCID",
    .step_tasks = "SLURM_STEP_NUM_TASKS",  // SLURM_NTASKS counts the job's tasks, also without srun
    .node = "SLURMD_NODENAME",
    .pmix_namespace = "slurm.",
};

constexpr SchedulerWords kWords{
    .name = "Slurm",
    .id = "slurm",
    .script_extension = ".sbatch",
    .launch = "srun",
    .launch_advice = "`srun --mpi=pmix ...` under Slurm (`srun --mpi=list` shows what it offers)",
    .launch_one = "srun -n 1",
    .bind_advice = "srun --cpu-bind=cores with --cpus-per-task",
    .environment_advice = "srun --export=ALL",
    .submit = "sbatch",
    .cancel = "scancel",
    .list_jobs = "squeue",
    .list_nodes = "sinfo -s",
    .open_files_advice = "LimitNOFILE of slurmd",
    .locked_memory_advice =
        "LimitMEMLOCK=infinity for slurmd, PropagateResourceLimitsExcept=MEMLOCK in slurm.conf",
};

/// Options that users may put after the job script by mistake, where they reach the program.
constexpr std::array<std::string_view, 20> kOptions{
    "--nodes",      "--ntasks",   "--ntasks-per-node", "--gpus-per-node", "--gpus",
    "--gres",       "--mem",      "--cpus-per-task",   "--time",          "--partition",
    "--account",    "--qos",      "--array",           "--dependency",    "--exclusive",
    "--constraint", "--nodelist", "--exclude",         "--job-name",      "--reservation"};

class Slurm final : public Scheduler {
 public:
  [[nodiscard]] const SchedulerVariables& variables() const noexcept override { return kVariables; }

  [[nodiscard]] const SchedulerWords& words() const noexcept override { return kWords; }

  /// Returns "9_2" for a task of an array, where SLURM_JOB_ID may be the id of the whole array.
  [[nodiscard]] std::string job_id() const override {
    const std::string array = variable_text("SLURM_ARRAY_JOB_ID");
    if (array.empty()) return variable_text(kVariables.job);
    return array + "_" + variable_text("SLURM_ARRAY_TASK_ID");
  }

  [[nodiscard]] std::vector<StepNode> step_nodes() const override {
    return trireme::scheduler::step_nodes(variable_text("SLURM_STEP_NODELIST"),
                                          variable_text("SLURM_STEP_TASKS_PER_NODE"));
  }

  [[nodiscard]] bool gave_gpus() const override {
    if (!variable_text("SLURM_STEP_GPUS").empty() || !variable_text("SLURM_JOB_GPUS").empty())
      return true;
    return parse_integer(variable_text("SLURM_GPUS_ON_NODE")).value_or(0) > 0;
  }

  [[nodiscard]] SchedulerAnswer ask(const std::string& id) const override {
    const ProgramEnd end = run_program({"scontrol", "-o", "show", "job", id}, kJobAnswer_s);
    return end.timed_out ? SchedulerAnswer{} : read_scheduler_answer(end.code, end.out);
  }

  [[nodiscard]] std::vector<JobTimes> times(const std::string& id) const override {
    const ProgramEnd end = run_program(sacct_words(id), kJobAnswer_s);
    return end.timed_out || end.code != 0 ? std::vector<JobTimes>{} : read_job_times(end.out);
  }

  [[nodiscard]] SchedulerJob read_job(std::string_view text) const override {
    return read_slurm_job(text);
  }

  [[nodiscard]] ClusterAnswer cluster() const override {
    const ProgramEnd end = run_program(sinfo_words(), kAnswer_s);
    if (end.code == 0) return {read_nodes(end.out), ""};
    return {{},
            formatted("sinfo ended with {}: {}", end.code, end.out.substr(0, end.out.find('\n')))};
  }

  [[nodiscard]] std::optional<double> time_s(std::string_view text) const override {
    return slurm_time_s(text);
  }

  [[nodiscard]] std::string time_of_script(const std::filesystem::path& script) const override {
    constexpr std::string_view kLine = "#SBATCH --time=";
    std::ifstream lines(script);
    for (std::string line; std::getline(lines, line);)
      if (line.starts_with(kLine)) return line.substr(kLine.size());
    return "";
  }

  [[nodiscard]] std::string partition_of(const std::vector<std::string>& options) const override {
    std::string partition = variable_text("SBATCH_PARTITION");
    for (std::size_t i = 0; i < options.size(); ++i) {
      const std::string& word = options[i];
      if (word.starts_with("--partition=")) partition = word.substr(12);
      if ((word == "--partition" || word == "-p") && i + 1 < options.size())
        partition = options[i + 1];
    }
    return partition;
  }

  [[nodiscard]] std::optional<std::int64_t> ranks_per_node(
      const std::vector<std::string>& options) const override {
    std::optional<std::int64_t> ranks;
    constexpr std::string_view kRanks = "--ntasks-per-node=";
    for (const std::string& word : options) {
      if (!word.starts_with(kRanks)) continue;
      ranks = parse_integer(word.substr(kRanks.size())).value_or(0);
      if (*ranks < 1) fail(ErrorKind::usage, "--sbatch {}, must be 1 or more", word);
    }
    return ranks;
  }

  [[nodiscard]] std::span<const std::string_view> option_names() const noexcept override {
    return kOptions;
  }

  [[nodiscard]] std::vector<std::string> submit_words(const JobOrder& order) const override {
    std::vector<std::string> words{"sbatch",
                                   "--parsable",
                                   "--job-name=" + order.name,
                                   formatted("--nodes={}", order.nodes),
                                   formatted("--ntasks-per-node={}", order.ranks_per_node),
                                   formatted("--cpus-per-task={}", order.cpus_per_rank),
                                   formatted("--gpus-per-node={}", order.gpus_per_node)};
    if (!order.time.empty()) words.push_back("--time=" + order.time);
    if (order.chain > 1) {
      words.push_back(formatted("--array=1-{}%1", order.chain));
      words.emplace_back("--output=%x-%A_%a.out");  // %j of a task differs from its name
    }
    if (!order.after.empty()) {
      words.push_back("--dependency=afterok:" + order.after);
      words.push_back("--kill-on-invalid-dep=yes");
    }
    words.insert(words.end(), order.options.begin(), order.options.end());
    words.push_back(order.script.string());
    words.insert(words.end(), order.arguments.begin(), order.arguments.end());
    return words;
  }

  [[nodiscard]] SubmitAnswer submit(const std::vector<std::string>& words) const override {
    const ProgramEnd end = run_program(words, kAnswer_s);
    return {end.code == 0, end.out.substr(0, end.out.find_first_of(";\n")), end.out};
  }

  [[nodiscard]] std::string exclude_option(const std::string& nodes) const override {
    return "sbatch --exclude=" + nodes;
  }

  [[nodiscard]] std::string show_command(const std::string& job) const override {
    return "squeue -j " + job;
  }

  // Slurm 22.05 signals the task of an array at once, but scancel then retries forever
  // ("transitional state"). The caller waits for a few seconds only.
  [[nodiscard]] std::vector<std::string> stacks_words(const std::string& job) const override {
    return {"scancel", "--signal=USR1", job};
  }

  [[nodiscard]] std::vector<std::string> beside_words(const std::string& job,
                                                      const std::string& node,
                                                      bool on_terminal) const override {
    std::vector<std::string> words{"srun",      "--jobid=" + job, "--overlap",
                                   "--nodes=1", "--ntasks=1",     "--nodelist=" + node};
    if (on_terminal) words.emplace_back("--pty");
    return words;
  }
};

}  // namespace

const Scheduler& slurm() noexcept {
  static const Slurm only;
  return only;
}

}  // namespace trireme::scheduler
