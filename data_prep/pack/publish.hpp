#pragma once
#include <cstddef>
#include <filesystem>
#include <vector>

#include "data_prep/pack/pack.hpp"
#include "data_prep/pack/pack_directory.hpp"
#include "data_prep/pack/pack_plan.hpp"

namespace trireme::data_prep {

/// Adds the shards in `directory` to the manifest, in order. A pure function of their content.
/// Throws Error(data) for a damaged shard or a shard with another identity.
void add_shards(const std::filesystem::path& directory, std::size_t num_shards,
                data::Manifest& manifest);

/// Writes the manifest when all shards of all parts exist; a finished set keeps its manifest.
/// Called by one rank. Returns the losses of the set. Throws Error(data) for more invalid records
/// than --max-bad, and for a set without documents after removing its shards.
std::vector<Loss> publish(const PackConfig& config, const PackPlan& plan,
                          const std::vector<std::string>& ignore_fields, bool is_finished,
                          const PackDirectory& directory);

/// Throws Error(data) if `count` invalid records exceed --max-bad. `hint` is appended to the
/// message.
void check_invalid_records(const PackConfig& config, std::uint64_t count, const std::string& hint);

}  // namespace trireme::data_prep
