#include "data_prep/input/partitions.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace trireme::data_prep {
namespace {

std::uint64_t bytes_of(const std::vector<InputFile>& files, const InputRange& range) {
  return files[range.file].format->range_bytes(files[range.file], range);
}

std::uint64_t shard_range_end(const InputFile& file, std::uint64_t begin, std::uint64_t room,
                              std::uint64_t unit_bytes) {
  const InputFormat& format = *file.format;
  return format.shard_end == nullptr ? format.range_end(file, begin, room)
                                     : format.shard_end(file, begin, room, unit_bytes);
}

}  // namespace

std::vector<Partition> plan_partitions(const std::vector<InputFile>& files,
                                       std::uint64_t unit_bytes) {
  const std::uint64_t total = bytes_of(files, whole_files(files));
  if (total / unit_bytes >= kMaxShards && total > kMaxShards * unit_bytes) {
    fail(
        ErrorKind::usage,
        "--unit-bytes {} would make {} shards of {} bytes of input, at most {} are allowed: give at least {}",
        unit_bytes, (total - 1) / unit_bytes + 1, total, kMaxShards, (total - 1) / kMaxShards + 1);
  }
  std::vector<Partition> partitions(1);
  std::uint64_t room = unit_bytes;
  for (std::uint32_t i = 0; i < files.size(); ++i) {
    const InputFile& file = files[i];
    for (std::uint64_t begin = 0; begin < file.size;) {
      if (room == 0) {
        partitions.emplace_back();
        room = unit_bytes;
      }
      const InputRange range{i, begin, shard_range_end(file, begin, room, unit_bytes)};
      if (range.end == begin) {
        room = 0;
        continue;
      }
      partitions.back().push_back(range);
      begin = range.end;
      room -= std::min(room, bytes_of(files, range));
    }
  }
  return partitions;
}

std::vector<std::vector<std::size_t>> group_partitions(const std::vector<InputFile>& files,
                                                       const std::vector<Partition>& partitions,
                                                       std::uint64_t unit_bytes) {
  std::vector<std::vector<std::size_t>> groups;
  for (std::size_t i = 0; i < partitions.size(); ++i) {
    bool bound = false;
    if (i != 0 && !partitions[i].empty()) {
      const InputRange& first = partitions[i].front();
      const InputFile& file = files[first.file];
      bound = file.format->start_cost(file, first.begin) > unit_bytes / 4;
    }
    if (!bound) groups.emplace_back();
    groups.back().push_back(i);
  }
  return groups;
}

std::vector<InputRange> split_chunks(const std::vector<InputFile>& files,
                                     const std::vector<InputRange>& ranges,
                                     std::uint64_t chunk_bytes) {
  std::vector<InputRange> chunks;
  for (const InputRange& range : ranges) {
    const InputFile& file = files[range.file];
    for (std::uint64_t begin = range.begin; begin < range.end; begin = chunks.back().end) {
      const std::uint64_t end = file.format->range_end(file, begin, chunk_bytes);
      chunks.push_back({range.file, begin, std::min(range.end, end)});
    }
  }
  return chunks;
}

std::vector<InputRange> whole_files(const std::vector<InputFile>& files) {
  std::vector<InputRange> ranges;
  for (std::uint32_t i = 0; i < files.size(); ++i) ranges.push_back({i, 0, files[i].size});
  return ranges;
}

std::uint64_t bytes_of(const std::vector<InputFile>& files, const std::vector<InputRange>& ranges) {
  std::uint64_t sum = 0;
  for (const InputRange& range : ranges) sum += bytes_of(files, range);
  return sum;
}

}  // namespace trireme::data_prep
