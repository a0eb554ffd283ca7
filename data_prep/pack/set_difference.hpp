#pragma once
#include <string>

#include "data/shards/shard_meta.hpp"
#include "data/shards/token_set.hpp"

namespace trireme {

/// What makes the set of `asked` another one than the set `found` in the output folder, as options
/// with both values: "--seq-len is 512 there, 2048 here; the input b.jsonl has changed". Of
/// manifests that start_manifest begins, with different identities.
std::string describe_difference(const Manifest& found, const Manifest& asked);

/// The same from what a shard of an unfinished set tells, after ": ".
std::string describe_difference(const ShardMeta& found, const Manifest& asked,
                                std::size_t num_shards);

}  // namespace trireme
