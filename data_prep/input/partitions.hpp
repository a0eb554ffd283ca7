#pragma once
#include <cstdint>
#include <vector>

#include "data_prep/input/input_format.hpp"

namespace trireme::data_prep {

/// The input of one shard: at most one range per input, in order.
using Partition = std::vector<InputRange>;

/// Maximum number of shards of a set: more files in one directory slow down shared file systems.
inline constexpr std::uint64_t kMaxShards = 100'000;

/// Cuts the inputs into partitions. Treats them as one stream in order, cut every `unit_bytes`, so
/// that many small files share a partition and a large file is spread over several. A pure function
/// of sizes and unit_bytes. There is at least one partition, even for empty inputs. Throws
/// Error(usage) for more than kMaxShards.
std::vector<Partition> plan_partitions(const std::vector<InputFile>& files,
                                       std::uint64_t unit_bytes);

/// Returns groups of partitions, ascending. One rank should process a group in order: inside a
/// compressed file it continues where the last partition ended, while another rank would have to
/// decompress from the last access point. A partition that can begin on its own is a group of one.
/// Each partition is in exactly one group.
std::vector<std::vector<std::size_t>> group_partitions(const std::vector<InputFile>& files,
                                                       const std::vector<Partition>& partitions,
                                                       std::uint64_t unit_bytes);

/// Splits the ranges into chunks of at most about `chunk_bytes`, in order.
std::vector<InputRange> split_chunks(const std::vector<InputFile>& files,
                                     const std::vector<InputRange>& ranges,
                                     std::uint64_t chunk_bytes);

/// Returns one range for each file.
std::vector<InputRange> whole_files(const std::vector<InputFile>& files);

/// Returns the number of bytes of the ranges.
std::uint64_t bytes_of(const std::vector<InputFile>& files, const std::vector<InputRange>& ranges);

}  // namespace trireme::data_prep
