#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "data_prep/input/compression.hpp"

namespace trireme {

/// One input file. Its bytes, offsets and partitions are those of the decompressed stream.
struct InputFile {
  std::filesystem::path path;
  std::string
      name;  // relative to the inputs' common folder: what goes into shards, never an absolute path
  std::uint64_t size = 0;  // bytes of the stream
  /// XXH3-128 of the first and last 64 KiB of the file (compressed: and its size).
  std::string fingerprint;
  Compression compression = Compression::none;
  std::uint64_t packed_size = 0;    // bytes of the file
  std::vector<AccessPoint> points;  // compressed: where reading can begin, ascending
};

/// Looks at each input, in the order given. An argument is a file, a folder (all .jsonl, .jsonl.gz
/// and .jsonl.zst below it, sorted by name) or, if no file has that name, a pattern with *, ? or [
/// (sorted). Compressed files are decompressed once to learn the size of their streams, and so
/// checked, shared over threads and ranks (collective over `world`; null: this process alone).
/// Throws Error(usage) for no file at all, a folder or pattern without any, one file given twice,
/// an unknown compression; Error(data) for what cannot be read or is damaged.
std::vector<InputFile> inspect_inputs(const std::vector<std::string>& arguments,
                                      std::int64_t threads = 1, Communicator* world = nullptr);

/// Bytes [begin, end) of input `file`: the lines whose first byte lies in it.
struct ByteRange {
  std::uint32_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

using Partition = std::vector<ByteRange>;

/// File systems, and whoever looks after them, suffer from more files than this in one folder.
inline constexpr std::uint64_t kMaxShards = 100'000;

/// One partition of work: becomes one shard. The inputs are seen as one stream, in order, cut every
/// `unit_bytes`; so many small files share a partition and a large one is spread over several. A
/// pure function of sizes and unit_bytes. There is at least one partition, also for empty inputs.
/// Throws Error(usage) for more than kMaxShards.
std::vector<Partition> plan_partitions(const std::vector<InputFile>& files,
                                       std::uint64_t unit_bytes);

/// Partitions that one rank should make one after another, ascending: inside a compressed file
/// reading goes on where the last partition ended, while another rank would have to decompress from
/// the last access point. Partitions that can begin on their own are chains of one. Each partition
/// is in exactly one.
std::vector<std::vector<std::size_t>> chain_partitions(const std::vector<InputFile>& files,
                                                       const std::vector<Partition>& partitions,
                                                       std::uint64_t unit_bytes);

/// The ranges cut into chunks of at most `chunk_bytes`, in order.
std::vector<ByteRange> split_chunks(const std::vector<ByteRange>& ranges,
                                    std::uint64_t chunk_bytes);

}  // namespace trireme
