#pragma once
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "comm/communicator.hpp"
#include "config/config_set.hpp"
#include "core/error.hpp"
#include "job/run_directory.hpp"
#include "train/config/config.hpp"
#include "train/state/run_values.hpp"

namespace trireme::train {

/// The start of a run: the contents of its directory and of the checkpoint that it starts from.
/// They are read before the data is opened, so that the whole configuration can be checked at
/// once.
struct RunStart {
  enum class Kind {
    nothing,     // random weights
    resume_run,  // resume from the run's own newest checkpoint
    state,       // new run: weights, optimizer state, step and data position of another run
    weights,     // new run: weights only
  };

  Kind kind = Kind::nothing;
  std::string checkpoint;       // path of the checkpoint that `values` come from
  bool own = false;             // true if the run directory holds checkpoints
  RunValues values;             // values of the newest checkpoint with a readable manifest
  std::int64_t committed = -1;  // newest step in status.json; -1: none
  bool has_shape = false;       // true if model.* keys were taken from this start
  std::string preset;           // model.preset of this start
  /// Set if the named checkpoint cannot be read, or the run's own checkpoints are missing.
  std::optional<Error> error;

  /// Returns true if `--resume never` created this run. If the command gives the same option again,
  /// the run resumes.
  [[nodiscard]] bool was_started_fresh() const;
  /// Returns the number of completed steps; 0 if the run begins at step 0.
  [[nodiscard]] std::int64_t step() const;
};

/// Returns Error(data) for a run in which no checkpoint can be used.
[[nodiscard]] Error no_complete_checkpoint(const std::filesystem::path& folder);

/// Reads the start on rank 0 and broadcasts it. Sets the `keys` that the command does not set: from
/// the run's config.toml, then from the checkpoint. If only weights are taken, only the model's
/// shape and the meaning of its adapters are set. If the run directory has no checkpoint, the run
/// starts again with the values of the command. In this case, config.toml is used only if the
/// command names neither data nor a checkpoint to start from. A config.toml that cannot be read
/// causes a warning (ConfigSet::warnings). Collective.
///   config  the object that `keys` refer to; checkpoint.resume and checkpoint.start are read
RunStart read_start(RunConfig& config, config::ConfigSet& keys, const job::RunDirectory& folder,
                    comm::Communicator& world);

/// Adds a problem if the task `name` needs a trained model and the run has none. Also adds a
/// problem if the run resumes and the command names another model than the model that this run
/// started from.
void check_init(std::string_view name, const RunConfig& config, const RunStart& start,
                config::ConfigSet& keys);

/// Throws Error(usage) if the run to resume belongs to another task than `name`.
void check_task(std::string_view name, const RunStart& start);

/// Adds a problem if checkpoint.start asks for something that the start does not have.
void check_start_kind(const RunConfig& config, const RunStart& start, config::ConfigSet& keys);

}  // namespace trireme::train
