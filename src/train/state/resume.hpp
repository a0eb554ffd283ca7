#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/config_set.hpp"
#include "train/state/run_values.hpp"

namespace trireme::train {

/// Returns the resolved configuration as a checkpoint keeps it (RunValues::config).
RunValues::Texts config_texts(const config::ConfigSet& config);

/// Returns the value that checkpoints without this key were trained with; nullopt for original
/// keys.
std::optional<std::string> value_of_older_versions(std::string_view key);

/// A key with another value than in the checkpoint.
struct ChangedKey {
  std::string key;
  std::string was;
  std::string now;
};

/// Returns all keys that differ, except checkpoint.* keys.
std::vector<ChangedKey> changed_keys(const RunValues& values, const config::ConfigSet& config);

/// Returns a text such as "optim.lr 0.003 -> 1e-4, data.path a -> b".
std::string changes_text(const std::vector<ChangedKey>& changes);

/// Returns true if the key does not change what is computed (layout, logging, length of the run).
bool may_differ(const std::string& key);

/// Compares the configuration of a checkpoint with `config`. Keys that change the computation must
/// agree; other keys (see may_differ) may differ. Throws Error(usage); the message names every
/// field that differs, both values and the origin of the new one.
void check_same_run(const RunValues& values, const config::ConfigSet& config,
                    const std::string& checkpoint);

/// Returns a hash of the data and of all keys that must agree. A newer version with more keys
/// returns the same hash.
std::string run_identity(const config::ConfigSet& config, const std::string& data_hash);

}  // namespace trireme::train
