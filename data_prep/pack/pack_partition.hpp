#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data_prep/documents/chunk_result.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "data_prep/input/chunk_reader.hpp"
#include "data_prep/input/partitions.hpp"
#include "data_prep/pack/pack_folder.hpp"
#include "data_prep/progress.hpp"
#include "data_prep/worker_pool.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

/// Everything of one partition in memory, in input order: about token width x tokens
/// + 28 bytes a document.
struct PartitionResult {
  DocumentColumns documents;
  std::vector<std::uint64_t> lines;  // [range] records of it
  std::vector<BadLine> bad;
  std::map<std::string, IgnoredField> ignored;  // by name
  std::string input_xxh3;
};

/// Turns one partition's records into documents of tokens with the pool's threads, `tick` as
/// WorkerPool::run. `reader` reads `files` and serves partition after partition. The result does
/// not depend on the number of threads. Throws Error(data) with path and offset for bad text under
/// OnBadText::error (the first in input order), and PartitionDropped at a second stop signal.
PartitionResult tokenize_partition(const std::vector<InputFile>& files, const Partition& partition,
                                   const Tokenizer& tokenizer, const DocumentRules& rules,
                                   ChunkReader& reader, WorkerPool& pool, ProgressDisplay& progress,
                                   const std::function<void()>& tick);

/// The input_xxh3 that tokenize_partition would give, at the speed of reading. Throws
/// PartitionDropped at a stop signal, else as ChunkReader::read.
std::string hash_partition(const std::vector<InputFile>& files, const Partition& partition,
                           ChunkReader& reader, WorkerPool& pool, ProgressDisplay& progress,
                           const std::function<void()>& tick);

}  // namespace trireme
