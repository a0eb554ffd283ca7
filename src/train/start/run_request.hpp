#pragma once
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "comm/factory.hpp"
#include "config/config_set.hpp"
#include "job/event_log.hpp"
#include "job/run_directory.hpp"
#include "train/config/config.hpp"
#include "train/start/run_start.hpp"
#include "train/task/task.hpp"

namespace trireme::train {

/// The ranks of a run, and the communication backends for devices (only some programs link them).
struct RunRanks {
  const comm::LaunchInfo& launch;
  comm::Communicator& world;  // CPU: control, agreement, metrics, checkpoints
  std::span<const comm::CommBackend> device_backends;  // "nccl" if it was built
  comm::CommOptions options;
  job::AttemptId attempt_id;  // scheduler job of this attempt; empty without a scheduler
};

/// The request that a program passes to run_task. `keys` refers to `config`, which run_task
/// resolves before the first step (resolve_config.hpp).
struct RunRequest {
  std::string program;    // name as the user typed it, for example "trireme"
  std::string_view name;  // name of the task, for example "pretrain"
  const Task& task;
  const RunConfig& config;
  const config::ConfigSet& keys;
  job::RunDirectory folder;
  RunStart start;
  RunRanks ranks;
  std::shared_ptr<job::EventLog>
      event_log;  // event log; writes nothing until the directory is claimed
};

}  // namespace trireme::train
