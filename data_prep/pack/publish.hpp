#pragma once
#include <cstddef>
#include <filesystem>
#include <vector>

#include "data_prep/pack/pack.hpp"
#include "data_prep/pack/pack_folder.hpp"
#include "data_prep/pack/pack_plan.hpp"

namespace trireme {

/// Adds the shards that lie in `folder` to the manifest, in order. A pure function of their content.
/// Throws Error(data) for a damaged shard or one of another identity.
void add_shards(const std::filesystem::path& folder, std::size_t num_shards, Manifest& manifest);

/// Completes the set, one rank only, when all shards of all parts are there: writes the manifest.
/// A finished set keeps the manifest that it has. Returns what the set lacks of its inputs. Throws
/// Error(data) for more bad lines than --max-bad, and for a set without documents, whose shards it
/// removes.
std::vector<Loss> publish(const PackConfig& config, const PackPlan& plan,
                          const std::vector<std::string>& ignore_fields, bool is_finished,
                          const PackFolder& folder);

/// Throws Error(data) if `count` bad lines are more than --max-bad allows. `hint` ends the message.
void check_bad_lines(const PackConfig& config, std::uint64_t count, const std::string& hint);

}  // namespace trireme
