#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/process/installation.hpp"
#include "scheduler/scheduler.hpp"

namespace trireme::job {

/// The command line of `trireme submit`.
struct SubmitRequest {
  std::string task;                    // "pretrain"
  std::vector<std::string> arguments;  // arguments of the task without --run
  std::filesystem::path run;
  std::int64_t nodes = 1;
  std::string time;  // "": time limit of the job script
  std::int64_t chain = 1;
  std::string after;                // ids of jobs, joined by colons; "": none
  std::vector<std::string> sbatch;  // further options of the scheduler
};

/// Returns the kind of nodes for a job in `partition` ("": the default partition). Prefers kinds
/// with GPUs, then the kind with the most nodes. Returns none if there is no such partition.
std::optional<scheduler::NodeKind> choose_kind(const std::vector<scheduler::NodeKind>& kinds,
                                               const std::string& partition);

/// A problem because of which the job must not be submitted.
struct SubmitProblem {
  std::string id;
  std::string what;
  std::string advice;
};

/// The number of ranks per node, CPUs per rank and GPUs. With GPUs, each GPU gets one rank. Without
/// GPUs, each node gets one rank with all its CPUs. `--sbatch=--ntasks-per-node=N` overrides the
/// number of ranks.
struct NodeShape {
  std::int64_t ranks = 1;
  std::int64_t cpus_per_rank = 1;
  std::int64_t gpus = 0;
};

NodeShape shape_of(const SubmitRequest& request, const scheduler::NodeKind& kind);

/// Returns the job script of the task in `home`, the directory that contains slurm/. If the task has no script for this
/// type of GPU, returns its script for a100. If it has none, returns train_a100, the script of all tasks. Its first
/// argument is the task.
std::filesystem::path script_of(const SubmitRequest& request, const scheduler::NodeKind& kind,
                                const std::filesystem::path& home);

/// Returns the time limit of the job: --time of the request, or the limit of the script if --time
/// is not given. A limit above that of the partition is reduced. Returns "" if there is no limit.
/// Throws Error(usage) for an invalid time.
std::string time_of(const SubmitRequest& request, const scheduler::NodeKind& kind,
                    const std::filesystem::path& script);

/// Returns the complete description of the job for the scheduler, so that the user need not edit a
/// job script. `home` is the checkout, or its frozen copy.
scheduler::JobOrder order_of(const SubmitRequest& request, const scheduler::NodeKind& kind,
                             const std::filesystem::path& home,
                             const std::vector<std::string>& arguments);

/// The resources that a job needs; the nodes and limits of the partition must provide them.
struct JobNeeds {
  std::int64_t memory_bytes_per_rank = 0;
  // seconds in which a job does not train: until its first step is done, and for the last save
  double overhead_s = 0;
};

/// Returns overhead_s of a job that saves `checkpoint_bytes` on `nodes` nodes. Uses the start time
/// of the last attempt in the event log, or one minute if there is none. Assumes that a node writes
/// 200 MB/s.
double overhead_of(const std::filesystem::path& run, std::int64_t checkpoint_bytes,
                   std::int64_t nodes);

/// Returns the problems with nodes and limits of the partition. `time`: result of time_of().
std::vector<SubmitProblem> scheduler_problems(const SubmitRequest& request,
                                              const scheduler::NodeKind& kind,
                                              const std::string& time, const JobNeeds& needs);

/// The frozen copy of the programs and configuration of a job.
struct Frozen {
  std::filesystem::path home;  // has the directory layout of a checkout
  std::vector<std::string> arguments;
};

/// Copies the files of a job into a new directory of RUN/submit: the programs, the job scripts, the
/// settings of the site, and the configuration files that the arguments name. Programs of an
/// installed prefix are linked instead, because they find their libraries beside themselves and do
/// not change. The returned arguments name the copies. For dependent jobs, also creates the file
/// `chain-code`, which shows the job scripts that the jobs are dependent (slurm/lib/dependent_jobs.sh).
Frozen freeze(const SubmitRequest& request, const Installation& installation);

}  // namespace trireme::job
