#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/scheduler.hpp"

namespace trireme {

/// What is asked for on the command line of `trireme submit`.
struct SubmitRequest {
  std::string task;                    // "pretrain"
  std::vector<std::string> arguments;  // of the task, without --run
  std::filesystem::path run;
  std::int64_t nodes = 1;
  std::string time;  // "": the script's
  std::int64_t chain = 1;
  std::string after;                // ids of jobs, joined by colons; "": none
  std::vector<std::string> sbatch;  // further options of the scheduler
};

/// The kind for a job: of `partition` ("" : the default one), with GPUs if any has some, the one with
/// most nodes. None: there is no such partition.
std::optional<NodeKind> choose_kind(const std::vector<NodeKind>& kinds,
                                    const std::string& partition);

/// What stands in the way of a job, or of its run.
struct SubmitProblem {
  std::string id;
  std::string what;
  std::string advice;
};

/// Ranks a node and CPUs a rank: one rank a GPU; without GPUs one rank a node with all of its CPUs;
/// or as many ranks as `--sbatch=--ntasks-per-node=N` says.
struct NodeShape {
  std::int64_t ranks = 1;
  std::int64_t cpus_per_rank = 1;
  std::int64_t gpus = 0;
};

NodeShape shape_of(const SubmitRequest& request, const NodeKind& kind);

/// The job script of the task in a checkout: the one for this GPU type if there is one, else a100's.
std::filesystem::path script_of(const SubmitRequest& request, const NodeKind& kind,
                                const std::filesystem::path& home);

/// How long the job may take: the request's --time, else the script's, cut to what the partition
/// allows; "" where nothing says. Throws Error(usage) for a time that is none.
std::string time_of(const SubmitRequest& request, const NodeKind& kind,
                    const std::filesystem::path& script);

/// The job as the scheduler gets it: nobody edits a job script. `home`: the checkout, or what was frozen
/// of it.
JobOrder order_of(const SubmitRequest& request, const NodeKind& kind,
                  const std::filesystem::path& home, const std::vector<std::string>& arguments);

/// What a job takes, as far as nodes and limits can forbid it.
struct JobNeeds {
  std::int64_t memory_bytes_per_rank = 0;
  double overhead_s = 0;  // of each job: until its first step is done, and to save at its end
};

/// overhead_s of a job that saves `checkpoint_bytes` on `nodes`: the start is the run's last one
/// where its journal tells, else a minute; each node writes 200 MB/s.
double overhead_of(const std::filesystem::path& run, std::int64_t checkpoint_bytes,
                   std::int64_t nodes);

/// What the nodes and the partition's limit forbid. `time`: of time_of().
std::vector<SubmitProblem> scheduler_problems(const SubmitRequest& request, const NodeKind& kind,
                                              const std::string& time, const JobNeeds& needs);

/// What a job runs, as it is now.
struct Frozen {
  std::filesystem::path home;  // laid out as a checkout
  std::vector<std::string> arguments;
};

/// Copies what the job will run into a new folder of RUN/submit: the programs of `bin`, the job scripts
/// of `home` and the configuration files among the arguments, which then name the copies. Of a chain
/// there is a file `chain-code` beside them, by which its jobs know that they are one (lib.sh).
Frozen freeze(const SubmitRequest& request, const std::filesystem::path& home,
              const std::filesystem::path& bin);

}  // namespace trireme
