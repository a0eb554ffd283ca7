#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "job/submit/cluster.hpp"

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
  std::vector<std::string> sbatch;  // further options, as they are
};

/// What stands in the way of a job, or of its run.
struct SubmitProblem {
  std::string id;
  std::string what;
  std::string advice;
};

/// Ranks a node and CPUs a rank: one rank a GPU; without GPUs one rank a node with all of its CPUs.
struct NodeShape {
  std::int64_t ranks = 1;
  std::int64_t cpus_per_rank = 1;
  std::int64_t gpus = 0;
};

NodeShape shape_of(const NodeKind& kind);

/// The job script of the task in a checkout.
std::filesystem::path script_of(const SubmitRequest& request, const std::filesystem::path& home);

/// The sbatch command: nobody edits `#SBATCH` lines. `home`: the checkout, or what was frozen of it.
std::vector<std::string> sbatch_words(const SubmitRequest& request, const NodeKind& kind,
                                      const std::filesystem::path& home,
                                      const std::vector<std::string>& arguments);

/// What the nodes and the partition's limit forbid.
std::vector<SubmitProblem> scheduler_problems(const SubmitRequest& request,
                                              const std::vector<NodeKind>& kinds);

/// Of the partition that the request's options, else SBATCH_PARTITION, name; "": the default one.
std::string partition_of(const SubmitRequest& request);

/// What a job runs, as it is now.
struct Frozen {
  std::filesystem::path home;  // laid out as a checkout
  std::vector<std::string> arguments;
};

/// Copies what the job will run into a new folder of RUN/submit: the programs of `bin`, the job scripts
/// of `home` and the configuration files among the arguments, which then name the copies.
Frozen freeze(const SubmitRequest& request, const std::filesystem::path& home,
              const std::filesystem::path& bin);

}  // namespace trireme
