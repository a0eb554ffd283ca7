#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data_prep/documents/document_maker.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "data_prep/input/chunk_reader.hpp"
#include "data_prep/input/partitions.hpp"
#include "data_prep/pack/pack_directory.hpp"
#include "data_prep/progress.hpp"
#include "data_prep/worker_pool.hpp"
#include "text/tokenizer.hpp"

namespace trireme::data_prep {

/// The documents of one partition in input order. Memory: about token width x tokens + 28 bytes per
/// document.
struct PartitionResult {
  data::DocumentColumns documents;
  std::vector<std::uint64_t> lines;  // [range] number of records
  std::vector<InvalidRecord> bad;
  std::map<std::string, IgnoredField> ignored;  // key: name
  std::string input_xxh3;
};

/// Converts the records of one partition to documents of tokens, with the threads of the pool.
/// `tick` is called like in WorkerPool::run. `reader` reads `files` and is reused for all
/// partitions. The result does not depend on the number of threads. Throws Error(data) with path
/// and offset for the first bad text under OnBadText::error, and PartitionDropped at a second stop
/// signal.
PartitionResult tokenize_partition(const std::vector<InputFile>& files, const Partition& partition,
                                   const text::Tokenizer& tokenizer, const DocumentRules& rules,
                                   ChunkReader& reader, WorkerPool& pool, ProgressDisplay& progress,
                                   const std::function<void()>& tick);

/// Returns the input_xxh3 that tokenize_partition would compute, without tokenizing. Throws
/// PartitionDropped at a stop signal, otherwise like ChunkReader::read.
std::string hash_partition(const std::vector<InputFile>& files, const Partition& partition,
                           ChunkReader& reader, WorkerPool& pool, ProgressDisplay& progress,
                           const std::function<void()>& tick);

}  // namespace trireme::data_prep
