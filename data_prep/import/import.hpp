#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "data_prep/import/import_format.hpp"
#include "data_prep/progress.hpp"

namespace trireme {

/// What `import` is asked for. All but the last decides the bytes of the set.
struct ImportConfig {
  std::string format;               // "megatron" or "llm.c"
  std::vector<std::string> inputs;  // megatron: prefix, .bin or .idx
  std::string output;
  std::string tokenizer;        // folder or file; "": a set without one
  std::int64_t vocab_size = 0;  // needed without a tokenizer
  std::int64_t seq_len = 512;
  std::optional<std::int64_t> eot_id;  // llm.c: none: what the magic says; -1: no borders
  EotPlace eot = EotPlace::detect;     // llm.c
  std::int64_t shard_tokens = std::int64_t{1} << 26;  // of a shard, about
  ProgressMode progress = ProgressMode::automatic;
};

/// What import did, over all ranks.
struct ImportReport {
  std::uint64_t units = 0;
  std::uint64_t kept = 0;  // shards that lay there already
  double seconds = 0;
};

/// Makes a pretrain set from token files of another program, without tokenizing anew.
///
/// Each input is cut every shard_tokens; a unit goes from the first document that starts in its
/// part to the first one that starts in the next (a part in which none starts begins at its first
/// token; the rest at the end of an input joins the part before if its only document is no longer
/// than a part: so only documents longer than a part are cut). One unit becomes one shard: the
/// folder is a pure function of inputs and config, goes on after a kill, and ranks share the units
/// as in pack(). Ids are kept as they are and checked against the vocabulary.
///   memory  about two parts in the set's token width, 28 bytes a document, whatever the input
/// Collective over `world` (null: this process alone). Throws as pack(), and Error(usage)
/// if an input is not what the shards that lie there were made of.
ImportReport import_tokens(const ImportConfig& config, Communicator* world);

}  // namespace trireme
