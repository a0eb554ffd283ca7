#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::scheduler {

/// The names of the environment variables that a scheduler sets; "" for a variable that it lacks.
struct SchedulerVariables {
  const char* job = "";             // id of the job
  const char* job_tasks = "";       // number of processes of the job
  const char* job_nodes = "";       // number of nodes of the job
  const char* job_start = "";       // Unix time at which the job got its nodes
  const char* job_end = "";         // Unix time at which the job ends
  const char* restarts = "";        // number of requeues of the job
  const char* step = "";            // number of this start of processes within the job
  const char* rank = "";            // rank of a process that the scheduler's launcher started
  const char* step_tasks = "";      // number of processes of that start
  const char* node = "";            // name of this node
  const char* pmix_namespace = "";  // prefix of its PMIx namespaces (not a variable)
};

/// The words of a scheduler for messages: its name, programs, settings and files.
struct SchedulerWords {
  const char* name = "";  // "Slurm"
  const char* id = "";    // "slurm": in ids of problems, and the directory of job scripts
  const char* script_extension = "";      // ".sbatch"
  const char* launch = "";                // "srun": starts processes in a job
  const char* launch_advice = "";         // command that starts ranks for MPI
  const char* launch_one = "";            // command that starts one process
  const char* bind_advice = "";           // option that gives each rank its own CPUs
  const char* environment_advice = "";    // option that passes variables to all ranks
  const char* submit = "";                // "sbatch": puts a job in the queue
  const char* cancel = "";                // "scancel": ends a job
  const char* list_jobs = "";             // "squeue"
  const char* list_nodes = "";            // shows the partitions
  const char* open_files_advice = "";     // setting of the hard limit of open files
  const char* locked_memory_advice = "";  // setting of the limit of locked memory
};

/// A node of a step (one start of processes in a job).
struct StepNode {
  std::string name;
  int tasks = 0;
};

/// Nodes of one kind in one partition.
struct NodeKind {
  std::string partition;
  bool is_default = false;
  std::int64_t nodes = 0;  // number of nodes that are up
  std::int64_t cpus = 0;   // CPUs per node
  std::int64_t memory_mb = 0;
  std::int64_t gpus = 0;
  std::string gpu_type;           // "a100"; "" if the scheduler reports no type
  std::optional<double> limit_s;  // longest time of a job; none: no limit
};

/// The nodes of the cluster.
struct ClusterAnswer {
  std::vector<NodeKind> kinds;
  std::string refused;  // error if the scheduler does not answer; "": it answers
};

/// A job to submit.
struct JobOrder {
  std::string name;
  std::int64_t nodes = 1;
  std::int64_t ranks_per_node = 1;
  std::int64_t cpus_per_rank = 1;
  std::int64_t gpus_per_node = 0;
  std::string time;                  // "": time limit of the script
  std::int64_t chain = 1;            // number of dependent jobs that run one after another
  std::string after;                 // ids of jobs, joined by colons; "": none
  std::vector<std::string> options;  // words of the scheduler's own command line
  std::filesystem::path script;
  std::vector<std::string> arguments;  // arguments of the script
};

/// The scheduler's description of a job. `state` and `reason` use the words of Slurm; other
/// schedulers must translate theirs.
struct SchedulerJob {
  bool known = false;  // the scheduler knows the job
  std::string id;      // "84"; a task of an array has its own number
  std::string state;   // "RUNNING", "COMPLETING", ...
  std::string reason;  // "TimeLimit", "None", ...
  std::int64_t restarts = 0;
  bool may_requeue = true;
  bool was_preempted = false;
  std::optional<double> end_s;  // Unix time at which the scheduler ends or ended the job
  std::string error_file;       // standard error file of a batch job; "": unknown

  /// Returns true if the job was cancelled: it leaves its nodes, and the reason is neither its time
  /// limit, nor a preemption, nor a lost node. `restart`: number of requeues of the caller's
  /// attempt.
  [[nodiscard]] bool is_cancelled(std::int64_t restart) const;

  /// Returns true if the scheduler requeues the job by itself. `restart`: as in is_cancelled().
  [[nodiscard]] bool is_requeued(std::int64_t restart) const;

  [[nodiscard]] bool is_at_time_limit() const;

  /// Returns true if the job waits in the queue.
  [[nodiscard]] bool is_pending() const { return state == "PENDING"; }

  /// Returns true if the job has nodes: it runs, starts, is suspended, or some processes still run.
  [[nodiscard]] bool is_active() const;

  [[nodiscard]] bool is_out_of_memory() const { return state == "OUT_OF_MEMORY"; }
};

/// The scheduler's answer to a submission.
struct SubmitAnswer {
  bool is_queued = false;
  std::string job;   // id of the job
  std::string text;  // the whole answer, with the reason of a refusal
};

/// The times of one start of a job, in Unix seconds, from the scheduler's accounting. A requeue
/// begins a new record with its own submission time.
struct JobTimes {
  std::optional<double> submit_s;
  std::optional<double> start_s;
  std::optional<double> end_s;
};

/// The state of a job as the scheduler reports it.
struct SchedulerAnswer {
  bool answered = false;           // false: there is no scheduler, or it does not answer
  std::vector<SchedulerJob> jobs;  // one for each task of an array; empty: unknown job
};

/// Asks about a job: ask_scheduler, or a function of a test.
using SchedulerQuery = std::function<SchedulerAnswer(const std::string& id)>;

/// The scheduler of a cluster: the allocation of this process, states of jobs, nodes, submission.
/// Functions that run a program of the scheduler wait for its answer for a limited time.
class Scheduler {
 public:
  virtual ~Scheduler() = default;

  [[nodiscard]] virtual const SchedulerVariables& variables() const noexcept = 0;
  [[nodiscard]] virtual const SchedulerWords& words() const noexcept = 0;

  /// Returns the id by which the scheduler knows this process's job; "" outside a job.
  [[nodiscard]] virtual std::string job_id() const = 0;

  /// Returns the nodes of this step; empty if they are unknown.
  [[nodiscard]] virtual std::vector<StepNode> step_nodes() const = 0;

  /// Returns true if the scheduler gave GPUs to this process's job.
  [[nodiscard]] virtual bool gave_gpus() const = 0;

  /// Returns the state of the job `id`, or of each task of an array; waits at most 10 s.
  [[nodiscard]] virtual SchedulerAnswer ask(const std::string& id) const = 0;

  /// Returns the times of all starts of the job `id`, oldest first; waits at most 10 s. Returns an
  /// empty list if the scheduler keeps no accounting or does not know the job.
  [[nodiscard]] virtual std::vector<JobTimes> times(const std::string& id) const = 0;

  /// Parses the scheduler's description of one job, which job scripts pass to `job finish`.
  [[nodiscard]] virtual SchedulerJob read_job(std::string_view text) const = 0;

  /// Returns the nodes of the cluster; waits at most 60 s.
  [[nodiscard]] virtual ClusterAnswer cluster() const = 0;

  /// Parses a time limit. Returns seconds; none for no limit. Throws Error(usage) for invalid text.
  [[nodiscard]] virtual std::optional<double> time_s(std::string_view text) const = 0;

  /// Returns the time limit that a job script asks for; "" if it asks for none.
  [[nodiscard]] virtual std::string time_of_script(const std::filesystem::path& script) const = 0;

  /// Returns the partition from the user's options or their environment variables; "" for the
  /// default.
  [[nodiscard]] virtual std::string partition_of(const std::vector<std::string>& options) const = 0;

  /// Returns the number of ranks per node from the user's options; none if it is not given. Throws
  /// Error(usage) for a number below 1.
  [[nodiscard]] virtual std::optional<std::int64_t> ranks_per_node(
      const std::vector<std::string>& options) const = 0;

  /// Returns the options of `words().submit` that users may put after the job script by mistake.
  [[nodiscard]] virtual std::span<const std::string_view> option_names() const noexcept = 0;

  /// Returns the command that submits a job.
  [[nodiscard]] virtual std::vector<std::string> submit_words(const JobOrder& order) const = 0;

  /// Runs the command of submit_words(); waits at most 60 s.
  [[nodiscard]] virtual SubmitAnswer submit(const std::vector<std::string>& words) const = 0;

  /// Returns `words().submit` with the option that excludes `nodes` (joined by commas).
  [[nodiscard]] virtual std::string exclude_option(const std::string& nodes) const = 0;

  /// Returns the command that shows a job in the queue.
  [[nodiscard]] virtual std::string show_command(const std::string& job) const = 0;

  /// Returns the command that sends SIGUSR1 to all processes of a job, which then write their
  /// stacks.
  [[nodiscard]] virtual std::vector<std::string> stacks_words(const std::string& job) const = 0;

  /// Returns the first words of a command that runs within a job on one of its nodes.
  [[nodiscard]] virtual std::vector<std::string> beside_words(const std::string& job,
                                                              const std::string& node,
                                                              bool on_terminal) const = 0;
};

/// Returns all known schedulers. Safe before main.
std::span<const Scheduler* const> schedulers() noexcept;

/// Returns the scheduler of this process's job; outside a job, the default one.
const Scheduler& scheduler() noexcept;

/// Returns the state of the job `id` ("17", "9_2").
SchedulerAnswer ask_scheduler(const std::string& id);

/// Returns the Unix time at which the scheduler ends this process's job; none outside a job, or
/// without an answer. Asks the scheduler, because the limit may have changed since the job began.
std::optional<double> job_end_from_scheduler();

/// Returns the value of an environment variable; "" if it is not set.
std::string variable_text(const char* name);

}  // namespace trireme::scheduler
