#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/shards/shard_writer.hpp"
#include "data_prep/documents/block_result.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "data_prep/input/block_reader.hpp"
#include "data_prep/pack/input_check.hpp"
#include "data_prep/progress.hpp"
#include "data_prep/worker_pool.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

/// Everything of one unit in memory, in input order: about token width x tokens
/// + 28 bytes a document.
struct UnitResult {
  std::vector<std::vector<std::byte>> token_parts;  // little-endian, one a block
  DocumentTable documents;                          // source = index of the input
  SpanTable loss;                                   // of kind sft
  PairTable pairs;                                  // of kind dpo
  std::map<std::uint32_t, std::uint64_t> lines;     // input -> lines of it that begin in the unit
  std::vector<BadLine> bad;
  ShardCounts counts;
  std::string input_xxh3;
};

/// Turns one unit's lines into documents of tokens with the pool's threads, `tick` as
/// WorkerPool::run. `reader` reads `files` and serves unit after unit. The result does not
/// depend on the number of threads. Throws Error(data) with path and offset for bad text under
/// OnBadText::error (the first in input order), and UnitDropped at a second stop signal.
UnitResult tokenize_unit(const std::vector<InputFile>& files, const Unit& unit,
                         const Tokenizer& tokenizer, const DocumentRules& rules,
                         BlockReader& reader, WorkerPool& pool, ProgressDisplay& progress,
                         const std::function<void()>& tick);

/// The input_xxh3 that tokenize_unit would give, at the speed of reading. Throws UnitDropped at a
/// stop signal, else as BlockReader::read.
std::string hash_unit(const Unit& unit, BlockReader& reader, WorkerPool& pool,
                      ProgressDisplay& progress, const std::function<void()>& tick);

}  // namespace trireme
