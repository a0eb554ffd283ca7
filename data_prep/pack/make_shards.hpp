#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "data/shards/shard_writer.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "data_prep/pack/pack_folder.hpp"
#include "data_prep/pack/pack_plan.hpp"

namespace trireme {

/// The parts that all ranks of a pack work with. All outlive it.
struct PackWork {
  const PackConfig& config;
  const DocumentRules& rules;
  const Tokenizer& tokenizer;
  const PackPlan& plan;
  const PackFolder& folder;
  Communicator& world;
};

/// Completes a shard that has documents and sources: packs the documents into sequences, counts
/// targets, and fills the rest of content.meta from the manifest of the set.
void complete_shard(const Manifest& manifest, std::size_t shard, std::size_t num_shards,
                    const std::string& input_xxh3, ShardContent& content);

/// Reads the inputs of this rank's share of the kept shards again, and throws Error(usage) if one has
/// changed. Returns how many it left out because of a stop signal.
std::uint64_t compare_kept(const PackWork& work, const Shards& kept);

/// Makes the missing shards together with the other ranks. Collective. Returns how many this rank
/// made; all ranks together make fewer than all only after a stop signal. Throws as pack does.
std::uint64_t make_shards(const PackWork& work, const Shards& missing);

}  // namespace trireme
