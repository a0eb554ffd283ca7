#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/factory.hpp"
#include "config/config_set.hpp"
#include "job/journal.hpp"
#include "job/run_folder.hpp"
#include "train/config/config.hpp"
#include "train/start/run_start.hpp"
#include "train/task/task.hpp"

namespace trireme {

/// Where a run stands: all ranks, and backends for devices that only some programs link.
struct RunRanks {
  const LaunchInfo& launch;
  Communicator& world;                           // CPU: control, agreement, metrics, checkpoints
  std::span<const CommBackend> device_backends;  // "nccl" where it was built
  CommOptions options;
  JobPlace place;  // of this leg, where a scheduler started it
};

/// What a program hands to a run. `keys` reads `config`, which run_task completes before the first
/// step (resolve_config.hpp).
struct RunRequest {
  std::string program;    // as the user called it: "trireme"
  std::string_view name;  // of the task: "pretrain"
  const Task& task;
  const RunConfig& config;
  const ConfigSet& keys;
  RunFolder folder;
  RunStart start;
  RunRanks ranks;
  std::shared_ptr<Journal> journal;  // of the folder, inert until that is claimed
};

}  // namespace trireme
