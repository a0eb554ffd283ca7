#pragma once
#include <cstdint>
#include <vector>

#include "data_prep/input/input_format.hpp"

namespace trireme {

/// The input of one shard: at most one range of each input, in order.
using Partition = std::vector<InputRange>;

/// Upper bound on the shards of a set: more files in one folder slow down shared file systems.
inline constexpr std::uint64_t kMaxShards = 100'000;

/// Cuts the inputs into partitions. They are seen as one stream, in order, cut every `unit_bytes`;
/// so many small files share a partition and a large one is spread over several. A pure function of
/// sizes and unit_bytes. There is at least one partition, also for empty inputs. Throws Error(usage)
/// for more than kMaxShards.
std::vector<Partition> plan_partitions(const std::vector<InputFile>& files,
                                       std::uint64_t unit_bytes);

/// Returns groups of partitions, ascending: one rank should make those of a group one after another.
/// Inside a compressed file reading goes on where the last partition ended, while another rank would
/// have to decompress from the last access point. Partitions that can begin on their own are groups
/// of one. Each partition is in exactly one group.
std::vector<std::vector<std::size_t>> group_partitions(const std::vector<InputFile>& files,
                                                       const std::vector<Partition>& partitions,
                                                       std::uint64_t unit_bytes);

/// Returns the ranges cut into chunks of at most about `chunk_bytes`, in order.
std::vector<InputRange> split_chunks(const std::vector<InputFile>& files,
                                     const std::vector<InputRange>& ranges,
                                     std::uint64_t chunk_bytes);

/// Returns one range for each file.
std::vector<InputRange> whole_files(const std::vector<InputFile>& files);

/// Returns the bytes of the ranges.
std::uint64_t bytes_of(const std::vector<InputFile>& files, const std::vector<InputRange>& ranges);

}  // namespace trireme
