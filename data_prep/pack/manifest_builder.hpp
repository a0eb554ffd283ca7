#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "data/shards/token_set.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "data_prep/input/inputs.hpp"
#include "data_prep/pack/pack_config.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

/// The manifest of a pack before any shard is made: all that follows from what was asked for.
/// `rules` are those of config.documents.
Manifest start_manifest(const PackConfig& config, const DocumentRules& rules,
                        const Tokenizer& tokenizer, const std::vector<InputFile>& files);

/// Adds the shards that lie in `folder`, in order. A pure function of their content.
/// Throws Error(data) for a damaged shard or one of another identity.
void add_shards(const std::filesystem::path& folder, std::size_t num_shards, Manifest& manifest);

}  // namespace trireme
