#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "core/log.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/pack/pack_config.hpp"

namespace trireme {

/// One kind of loss: how much, and the option of `pack` that changes it.
struct Loss {
  log::Level level = log::Level::warn;  // info: nothing was left out whole, and few documents cut
  std::string text;
};

/// The result of a pack, over all ranks. The sets of shards are those of PackPlan.
struct PackReport {
  std::uint64_t partitions = 0;         // shards of the whole set
  std::uint64_t missing_of_others = 0;  // shards of other parts that are not made yet
  std::uint64_t kept = 0;
  std::uint64_t interrupted =
      0;                   // shards that were being made when the last pack ended: done again
  std::uint64_t left = 0;  // shards to make or to compare: not 0 after a stop signal
  double seconds = 0;
  std::vector<Loss> losses{};  // of a finished set, on rank 0
};

/// Makes a token set: inputs -> partitions (ranges of inputs) -> one shard each -> manifest.json,
/// written last. Three steps: plan (pack_plan.hpp), make (make_shards.hpp), publish (publish.hpp).
///
/// Collective over `world` (null: this process alone): its ranks share the partitions; they must be
/// given equal configs and see one file system. The bytes of the folder are a pure function of
/// inputs, tokenizer and config: not of ranks, threads, time, or where a killed pack stopped.
/// Calling it again after a kill makes what is missing, work redone at most one partition a rank;
/// after success it makes nothing. With config.part it makes a fixed share of the shards, and whoever
/// finds that all are there completes the set. Either way the inputs of shards that lie there are
/// read again, and must be what they were. Where catch_stop_signals() was called, a stop
/// signal on any rank ends it after the partitions in hand.
/// A pack that fails before its first shard leaves neither tokenizer nor folder behind.
/// Throws, on the rank that meets it (others: PeerFailed if all agreed on it), Error(usage) for a wrong setting, a folder that holds
/// something else or an input that has changed, Error(data) for bad inputs (too many bad lines, no
/// documents), Error(resource) for the disk.
PackReport pack(const PackConfig& config, Communicator* world);

/// Returns the losses of a finished set: input that is absent from it or changed in it.
/// Fields that `ignore_fields` (--ignore-fields) names are an info, others that are not read a
/// warning.
std::vector<Loss> find_losses(const Manifest& manifest,
                              const std::vector<std::string>& ignore_fields);

/// Why `inputs` gave no document, for the refusal of a set that is not made: what was found in
/// them, with the first bad line.
std::string why_nothing(const std::string& inputs, const Manifest& manifest);

}  // namespace trireme
