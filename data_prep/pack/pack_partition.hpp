#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/shards/shard_writer.hpp"
#include "data_prep/documents/chunk_result.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "data_prep/input/chunk_reader.hpp"
#include "data_prep/pack/input_check.hpp"
#include "data_prep/progress.hpp"
#include "data_prep/worker_pool.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

/// Everything of one partition in memory, in input order: about token width x tokens
/// + 28 bytes a document.
struct PartitionResult {
  std::vector<std::vector<std::byte>> token_parts;  // little-endian, one a chunk
  DocumentTable documents;                          // source = index of the input
  DocumentTargets targets;
  std::map<std::uint32_t, std::uint64_t> lines;  // input -> lines of it that begin in the partition
  std::vector<BadLine> bad;
  std::map<std::string, IgnoredField> ignored;  // by name
  ShardCounts counts;
  std::string input_xxh3;
};

/// Turns one partition's lines into documents of tokens with the pool's threads, `tick` as
/// WorkerPool::run. `reader` reads `files` and serves partition after partition. The result does
/// not depend on the number of threads. Throws Error(data) with path and offset for bad text under
/// OnBadText::error (the first in input order), and PartitionDropped at a second stop signal.
PartitionResult tokenize_partition(const std::vector<InputFile>& files, const Partition& partition,
                                   const Tokenizer& tokenizer, const DocumentRules& rules,
                                   ChunkReader& reader, WorkerPool& pool, ProgressDisplay& progress,
                                   const std::function<void()>& tick);

/// The input_xxh3 that tokenize_partition would give, at the speed of reading. Throws
/// PartitionDropped at a stop signal, else as ChunkReader::read.
std::string hash_partition(const Partition& partition, ChunkReader& reader, WorkerPool& pool,
                           ProgressDisplay& progress, const std::function<void()>& tick);

}  // namespace trireme
