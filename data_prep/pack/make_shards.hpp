#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "data/shards/shard_writer.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "data_prep/pack/pack_directory.hpp"
#include "data_prep/pack/pack_plan.hpp"

namespace trireme::data_prep {

/// References to the components that all steps of a pack use. Each component outlives this object.
struct PackWork {
  const PackConfig& config;
  const DocumentRules& rules;
  const text::Tokenizer& tokenizer;
  const PackPlan& plan;
  const PackDirectory& directory;
  comm::Communicator& world;
};

/// Completes a shard that has documents and sources: packs the documents into sequences, counts the
/// targets, and fills the rest of content.meta from the manifest of the set.
void complete_shard(const data::Manifest& manifest, std::size_t shard, std::size_t num_shards,
                    const std::string& input_xxh3, data::ShardContent& content);

/// Reads the inputs of the kept shards that this rank checks and throws Error(usage) if one has
/// changed. Returns the number of shards that were not compared because of a stop signal.
std::uint64_t compare_kept(const PackWork& work, const Shards& kept);

/// Makes the missing shards together with the other ranks. Returns how many shards this rank made;
/// the sum is below the number of missing shards only after a stop signal. Collective. Throws like
/// pack.
std::uint64_t make_shards(const PackWork& work, const Shards& missing);

}  // namespace trireme::data_prep
