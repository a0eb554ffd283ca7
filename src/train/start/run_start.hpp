#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "comm/communicator.hpp"
#include "config/config_set.hpp"
#include "core/error.hpp"
#include "job/run_folder.hpp"
#include "train/config/config.hpp"
#include "train/state/run_values.hpp"

namespace trireme {

/// Where a run begins: what its folder and the checkpoint it goes on from hold, read before
/// anything is opened, so that the configuration is whole when it is checked.
struct RunStart {
  enum class Kind {
    nothing,  // random weights
    go_on,    // the run's own newest checkpoint
    state,    // a new run: weights, moments, step and place in the data of another run's
    weights,  // a new run: weights alone
  };

  Kind kind = Kind::nothing;
  std::string checkpoint;       // whose `values` these are
  bool own = false;             // the run's folder holds checkpoints
  RunValues values;             // of the newest one with a readable manifest
  std::int64_t committed = -1;  // newest step that status.json knows of; -1: none
  bool has_shape = false;       // model.* was taken from here
  std::string preset;           // its model.preset
  std::optional<Error>
      error;  // the checkpoint that was named cannot be read, or the run's are gone

  /// `--resume never` began this run: given again, it goes on.
  [[nodiscard]] bool begun_anew() const;
  /// Steps done there; 0 where the run begins at step 0.
  [[nodiscard]] std::int64_t step() const;
};

/// Collective: rank 0 reads, all get the same. Fills `keys` where this command says nothing: from
/// the run's config.toml, then from the checkpoint; with weights alone only the model's shape, and what adapters mean. A
/// run that has committed nothing is begun anew as the command says; one that names neither data
/// nor a start takes config.toml.
///   config  what `keys` fill: checkpoint.resume and checkpoint.start decide
/// A config.toml that cannot be read is passed over with a warning (ConfigSet::warnings).
RunStart read_start(RunConfig& config, ConfigSet& keys, const RunFolder& folder,
                    Communicator& world);

/// Of the task `name`, which goes on from a trained model: adds that there is none, or that this run
/// began from another one than the command names.
void check_init(std::string_view name, const RunConfig& config, const RunStart& start,
                ConfigSet& keys);

/// Throws Error(usage) if the run that `name` would go on with is one of another task.
void check_task(std::string_view name, const RunStart& start);

/// Adds what checkpoint.start asks for and the start does not have.
void check_start_kind(const RunConfig& config, const RunStart& start, ConfigSet& keys);

}  // namespace trireme
