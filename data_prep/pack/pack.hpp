#pragma once
#include <cstdint>
#include <string>

#include "comm/communicator.hpp"
#include "data_prep/pack/pack_config.hpp"
#include "data_prep/pack/pack_summary.hpp"

namespace trireme {

/// What pack did, over all ranks.
struct PackReport {
  std::uint64_t partitions = 0;  // of the whole set
  std::uint64_t of_others = 0;   // of them those of other parts that are not made yet
  std::uint64_t kept = 0;        // partitions whose shards lay there already
  std::uint64_t interrupted =
      0;                   // partitions that were being made when the last pack ended: done again
  std::uint64_t left = 0;  // partitions still to make or to compare: not 0 after a stop signal
  double seconds = 0;
  std::vector<Loss> losses{};  // of a finished set, on rank 0
};

/// Makes a token set from jsonl: inputs -> partitions (byte ranges) -> one shard each
/// -> manifest.json, written last.
///
/// Collective over `world` (null: this process alone): its ranks share the partitions; they must be
/// given equal configs and see one file system. The bytes of the folder are a pure function of
/// inputs, tokenizer and config: not of ranks, threads, time, or where a killed pack stopped.
/// Calling it again after a kill makes what is missing, work redone at most one partition a rank;
/// after success it makes nothing. With config.part it makes a fixed share of the shards, and whoever
/// finds that all are there completes the set. Either way the inputs of shards that lie there are
/// read again, and must be what they were. Where catch_stop_signals() was called, a stop
/// signal on any rank ends it after the partitions in hand.
/// Throws, on the rank that meets it, Error(usage) for a wrong setting, a folder that holds
/// something else or an input that has changed, Error(data) for bad inputs (too many bad lines, no
/// documents), Error(resource) for the disk.
PackReport pack(const PackConfig& config, Communicator* world);

}  // namespace trireme
