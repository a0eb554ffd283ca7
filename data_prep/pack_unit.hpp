#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/shard_writer.hpp"
#include "data_prep/block_reader.hpp"
#include "data_prep/pack_config.hpp"
#include "data_prep/progress.hpp"
#include "data_prep/worker_pool.hpp"
#include "text/tokenizer.hpp"

namespace trireme {

/// Bad lines that a shard lists; further ones are only counted.
inline constexpr std::size_t kMaxBadListed = 1000;

struct BadLine {
  std::uint32_t file = 0;  // index of the input
  std::uint64_t offset = 0;
  std::string reason;
};

/// Everything of one unit in memory, in input order: about token width x tokens + 28 bytes a
/// document.
struct UnitResult {
  std::vector<std::vector<std::byte>> token_parts;  // little-endian, one a block
  DocumentTable documents;                          // source = index of the input
  std::vector<BadLine> bad;
  ShardCounts counts;
  std::string input_xxh3;
};

/// Thrown when a second stop signal came: the unit is given up, nothing is lost but its work.
struct UnitDropped {};

/// Turns one unit's lines into documents of tokens with the pool's threads, `tick` as
/// WorkerPool::run. `reader` reads `files` and serves unit after unit. The result does not depend
/// on the number of threads. Throws Error(data) with path and offset for bad text under
/// OnBadText::error (the first in input order), and UnitDropped.
UnitResult tokenize_unit(const std::vector<InputFile>& files,
                         const Unit& unit,
                         const Tokenizer& tokenizer,
                         const PackConfig& config,
                         BlockReader& reader,
                         WorkerPool& pool,
                         Progress& progress,
                         const std::function<void()>& tick);

}  // namespace trireme
