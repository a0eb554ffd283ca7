#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "core/log.hpp"
#include "data/shards/token_set.hpp"
#include "data_prep/pack/pack_config.hpp"

namespace trireme::data_prep {

/// One kind of loss: its amount, and the option of `pack` that changes it.
struct Loss {
  log::Level level = log::Level::warn;  // info: no document was dropped, and few were cut
  std::string text;
};

/// The result of a pack over all ranks. PackPlan defines the sets of shards.
struct PackReport {
  std::uint64_t partitions = 0;         // shards of the whole set
  std::uint64_t missing_of_others = 0;  // shards of other parts that do not exist yet
  std::uint64_t kept = 0;
  std::uint64_t interrupted = 0;  // shards that the last pack did not finish; made again
  std::uint64_t left = 0;         // shards not made or not compared because of a stop signal
  double seconds = 0;
  std::vector<Loss> losses{};  // losses of a finished set, on rank 0
};

/// Makes a token set: inputs -> partitions (ranges of inputs) -> one shard each -> manifest.json,
/// written last. Three steps: plan (pack_plan.hpp), make (make_shards.hpp), publish (publish.hpp).
///
/// Collective over `world` (null: this process alone). The ranks split the partitions; they must
/// have equal configs and see one file system. The bytes of the directory are a pure function of
/// inputs, tokenizer and config. They do not depend on ranks, threads, time, or an earlier kill.
///
/// - A call after a kill makes the missing shards and repeats at most one partition per rank. After
///   success, a call makes nothing.
/// - With config.part, makes a fixed part of the shards. The part that finds all shards finished
///   completes the set.
/// - The inputs of existing shards are read again and must be unchanged.
/// - After catch_stop_signals(), a stop signal on any rank ends the pack after the current
///   partitions.
/// - A pack that fails before its first shard leaves neither tokenizer nor directory behind.
///
/// Throws Error(usage) for an invalid setting, a directory with other content or a changed input.
/// Throws Error(data) for bad inputs (too many invalid records, no documents), Error(resource) for
/// errors of the disk. Only the failing rank throws the error. If the ranks have agreed on the
/// failure, the other ranks throw PeerFailed.
PackReport pack(const PackConfig& config, comm::Communicator* world);

/// Returns the losses of a finished set: input that is missing or changed in the set. Unread fields
/// are a warning, or an info if `ignore_fields` (--ignore-fields) names them.
std::vector<Loss> find_losses(const data::Manifest& manifest,
                              const std::vector<std::string>& ignore_fields);

/// Returns "; the first (FILE:BYTE): a.jsonl:14: no field 'text'", or FILE:ROW for Parquet, for the
/// first invalid record; "" if there is none.
std::string first_invalid(const data::Manifest& manifest);

/// Returns why `inputs` gave no document, for the error message: the counts of their records and
/// the first invalid one.
std::string explain_empty_set(const std::string& inputs, const data::Manifest& manifest);

}  // namespace trireme::data_prep
