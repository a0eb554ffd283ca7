#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config_set.hpp"
#include "train/state/run_values.hpp"

namespace trireme {

/// Returns the resolved configuration as a checkpoint keeps it (RunValues::config).
RunValues::Texts config_texts(const ConfigSet& config);

/// What a checkpoint from before a key was made with; nothing for keys that are as old as the format.
std::optional<std::string> value_before(std::string_view key);

/// A key for which a checkpoint holds another value.
struct ChangedKey {
  std::string key;
  std::string was;
  std::string now;
};

/// Every key that differs, but how a run starts and saves (checkpoint.*).
std::vector<ChangedKey> changed_keys(const RunValues& values, const ConfigSet& config);

/// "optim.lr 0.003 -> 1e-4, data.path a -> b"
std::string changes_text(const std::vector<ChangedKey>& changes);

/// True for keys that only say how, where or how long a run computes.
bool may_differ(const std::string& key);

/// Compares what a checkpoint was trained with against `config`. Keys that change what is computed
/// must agree; those that only say how, where or how long (layout, device, micro-batch, logging,
/// number of steps) may differ. Throws Error(usage) naming every field that differs with both
/// values and the place of the new one.
void check_same_run(const RunValues& values, const ConfigSet& config,
                    const std::string& checkpoint);

/// One word for what the run computes: hash of the keys above that must agree and of the data. A
/// run keeps its own under a version that knows more keys.
std::string run_identity(const ConfigSet& config, const std::string& data_hash);

}  // namespace trireme
