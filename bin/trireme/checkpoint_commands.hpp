#pragma once
#include <cstdint>
#include <functional>
#include <string>

#include "checkpoint/upkeep/commands.hpp"
#include "checkpoint/upkeep/plan_interval.hpp"
#include "comm/communicator.hpp"
#include "config/command_line.hpp"
#include "config/config_set.hpp"

namespace trireme {

/// `trireme checkpoint list|verify|hash|inspect|diff|reshard|prune`, `bench checkpoint`,
/// `plan-interval`, `export` and `import`.
class CheckpointCommands {
 public:
  /// `world` returns the communicator of all ranks; it is called when a command runs.
  CheckpointCommands(CommandLine& line, std::function<Communicator&()> world);
  CheckpointCommands(const CheckpointCommands&) = delete;
  CheckpointCommands& operator=(const CheckpointCommands&) = delete;

 private:
  using SharedWork = std::function<std::string(Communicator& world)>;

  /// A body for a command of all ranks: each has the same text, rank 0 prints it.
  std::function<int()> shared(const SharedWork& work);
  std::string bench(Communicator& world) const;
  void add_inspection(CommandLine& line);
  void add_changes(CommandLine& line);
  void add_planning(CommandLine& line);
  void add_hugging_face(CommandLine& line);
  void complete_model(ConfigSet& keys);

  std::function<Communicator&()> world_;
  std::string place_;
  std::string other_;
  bool layout_ = false;
  bool json_ = false;
  bool allow_older_ = false;
  std::string bench_folder_ = "checkpoint-bench";
  std::int64_t bench_bytes_ = std::int64_t{1} << 30;
  std::int64_t bench_repeats_ = 5;
  ReshardCommand reshard_;
  PruneCommand prune_;
  IntervalQuestion interval_;
  ExportCommand export_;
  ImportCommand import_;
  ConfigSet model_keys_;  // of import_.model
};

}  // namespace trireme
