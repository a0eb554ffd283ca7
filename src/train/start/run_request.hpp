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

/// The ranks of a run, and the communication backends for devices (only some programs link them).
struct RunRanks {
  const LaunchInfo& launch;
  Communicator& world;                           // CPU: control, agreement, metrics, checkpoints
  std::span<const CommBackend> device_backends;  // "nccl" if it was built
  CommOptions options;
  JobPlace place;  // scheduler job of this attempt; empty without a scheduler
};

/// The request that a program passes to run_task. `keys` refers to `config`, which run_task
/// resolves before the first step (resolve_config.hpp).
struct RunRequest {
  std::string program;    // name as the user typed it, for example "trireme"
  std::string_view name;  // name of the task, for example "pretrain"
  const Task& task;
  const RunConfig& config;
  const ConfigSet& keys;
  RunFolder folder;
  RunStart start;
  RunRanks ranks;
  std::shared_ptr<Journal> journal;  // event log; writes nothing until the directory is claimed
};

}  // namespace trireme
