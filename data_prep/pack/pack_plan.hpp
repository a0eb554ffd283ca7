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

namespace trireme {

/// Numbers of shards. Four sets of them occur in a pack:
///   part     those that this process group makes (--part K/N); without --part all
///   missing  those of the part that have no shard file
///   kept     those of the part that have one
///   group    those that one rank makes one after another (group_partitions)
using Shards = std::vector<std::size_t>;

/// All that a pack is asked for, before it looks at its output. The same on all ranks.
struct PackPlan {
  std::vector<InputFile> inputs;
  std::vector<Partition> partitions;  // the input of each shard of the whole set
  std::vector<Shards> groups;         // of the part
  Manifest manifest;                  // without shards; its identity decides the set's bytes

  /// The shards of the part, ascending.
  [[nodiscard]] Shards part() const;

  /// Bytes of the inputs of one shard.
  [[nodiscard]] std::uint64_t bytes(std::size_t shard) const {
    return bytes_of(inputs, partitions[shard]);
  }

  /// The inputs of one shard, for a message.
  [[nodiscard]] std::string describe(std::size_t shard) const;
};

/// Looks at the inputs and plans the shards. Collective over `world`. Throws as inspect_records and
/// plan_partitions.
PackPlan plan_pack(const PackConfig& config, const DocumentRules& rules, const Tokenizer& tokenizer,
                   Communicator& world);

/// Puts what a manifest holds of the tokenizer.
void put_tokenizer(const Tokenizer& tokenizer, Manifest& manifest);

/// Puts names, sizes and fingerprints of the inputs and the identity that follows from all of the
/// manifest. Throws Error(usage) for a name that is not UTF-8, because manifests are JSON.
void put_inputs(const std::vector<InputFile>& inputs, Manifest& manifest);

}  // namespace trireme
