#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "data_prep/input/partitions.hpp"
#include "data_prep/pack/pack_config.hpp"
#include "text/tokenizer.hpp"

namespace trireme::data_prep {

/// Numbers of shards. A pack uses four sets of them:
///   part     the shards that this group of processes makes (--part K/N); without --part all
///   missing  the shards of the part that have no file
///   kept     the shards of the part that have a file
///   group    shards that one rank makes one after another (group_partitions)
using Shards = std::vector<std::size_t>;

/// The requested work of a pack, before it reads its output directory. Equal on all ranks.
struct PackPlan {
  std::vector<InputFile> inputs;
  std::vector<Partition> partitions;  // the input of each shard of the whole set
  std::vector<Shards> groups;         // groups of the part
  data::Manifest manifest;            // without shards; its identity determines the bytes

  /// Returns the shards of the part, ascending.
  [[nodiscard]] Shards part() const;

  /// Returns the bytes of input of one shard.
  [[nodiscard]] std::uint64_t bytes(std::size_t shard) const {
    return bytes_of(inputs, partitions[shard]);
  }

  /// Returns the inputs of one shard, for a message.
  [[nodiscard]] std::string describe(std::size_t shard) const;
};

/// Inspects the inputs and plans the shards. Collective over `world`. Throws like inspect_records
/// and plan_partitions.
PackPlan plan_pack(const PackConfig& config, const DocumentRules& rules,
                   const text::Tokenizer& tokenizer, comm::Communicator& world);

/// Sets the members of a manifest that describe the tokenizer.
void put_tokenizer(const text::Tokenizer& tokenizer, data::Manifest& manifest);

/// Sets names, sizes and fingerprints of the inputs, and the identity of the whole manifest. Throws
/// Error(usage) for a name that is not UTF-8, because manifests are JSON.
void put_inputs(const std::vector<InputFile>& inputs, data::Manifest& manifest);

}  // namespace trireme::data_prep
