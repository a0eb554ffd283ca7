#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace trireme {

/// One input file.
struct InputFile {
  std::filesystem::path path;
  std::string
      name;  // relative to the inputs' common folder: what goes into shards, never an absolute path
  std::uint64_t size = 0;   // bytes
  std::string fingerprint;  // XXH3-128 of the first and last 64 KiB: tells most other files of the
                            // same size
};

/// Looks at each input, in the order given. Throws Error(usage) for a folder, a compressed file
/// (.gz, .zst, .xz, .bz2: not read), one file given twice or none at all, Error(data) for a file
/// that cannot be read.
std::vector<InputFile> inspect_inputs(const std::vector<std::string>& paths);

/// Bytes [begin, end) of input `file`: the lines whose first byte lies in it.
struct ByteRange {
  std::uint32_t file = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// One unit of work: becomes one shard. The inputs are seen as one stream, in order, cut every
/// `unit_bytes`; so many small files share a unit and a large one is spread over several. A pure
/// function of sizes and unit_bytes. There is at least one unit, also for empty inputs.
std::vector<std::vector<ByteRange>> plan_units(const std::vector<InputFile>& files,
                                               std::uint64_t unit_bytes);

/// The ranges cut into blocks of at most `block_bytes`, in order.
std::vector<ByteRange> split_blocks(const std::vector<ByteRange>& ranges,
                                    std::uint64_t block_bytes);

}  // namespace trireme
