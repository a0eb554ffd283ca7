#include "data_prep/input/inputs.hpp"

#include <algorithm>
#include <numeric>

#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"
#include "data_prep/input/input_paths.hpp"
#include "data_prep/worker_pool.hpp"

namespace trireme {
namespace {

constexpr std::uint64_t kFingerprintBytes = 64 << 10;
constexpr std::size_t kHeadBytes = 512;
constexpr std::size_t kMeasureBytes = 1 << 20;

/// All but the stream size and the access points of a compressed file.
InputFile look_at(const std::filesystem::path& path, const std::filesystem::path& common) {
  InputFile file;
  file.path = path;
  file.name = path.lexically_relative(common).generic_string();
  file.packed_size = std::filesystem::file_size(path);
  file.size = file.packed_size;
  const Fd fd = open_read(path);
  Hasher hasher;
  std::string bytes(std::min(file.packed_size, kFingerprintBytes), '\0');
  for (const std::uint64_t offset : {std::uint64_t{0}, file.packed_size - bytes.size()}) {
    read_all(fd.get(), std::as_writable_bytes(std::span(bytes)), offset, path);
    hasher.update(bytes);
    if (offset == 0)
      file.compression = detect_compression(path, std::string_view(bytes).substr(0, kHeadBytes));
  }
  if (file.compression != Compression::none)
    hasher.update(formatted("{} of {}", name_of(file.compression), file.packed_size));
  file.fingerprint = hasher.hex();
  return file;
}

/// Decompresses all of it: its stream's size and its access points; the whole file is checked.
void measure(InputFile& file) {
  const Fd fd = open_read(file.path);
  Decompressor decoder(fd.get(), file.path, file.packed_size, file.compression, {});
  std::vector<std::byte> scratch(kMeasureBytes);
  while (decoder.read(scratch) == scratch.size()) {
  }
  file.size = decoder.offset();
  file.points = decoder.points();
}

/// What the ranks learned, to all of them: for each of `mine` its number, size and points.
void share(const std::vector<std::size_t>& mine, std::vector<InputFile>& files,
           Communicator& world) {
  std::vector<std::uint64_t> words{0};
  for (const std::size_t i : mine) {
    words.insert(words.end(), {i, files[i].size, files[i].points.size()});
    for (const AccessPoint& point : files[i].points)
      words.insert(words.end(), {point.offset, point.packed});
  }
  words[0] = words.size();
  const std::uint64_t longest = all_reduce_value(world, words[0], ReduceOp::max, "inputs");
  words.resize(longest);
  std::vector<std::uint64_t> all(longest * static_cast<std::uint64_t>(world.size()));
  world
      .all_gather({.input = words.data(),
                   .output = all.data(),
                   .count = longest,
                   .dtype = DType::u64,
                   .tag = "inputs"})
      ->wait();
  for (std::uint64_t begin = 0; begin < all.size(); begin += longest) {
    const std::uint64_t end = begin + all[begin];
    for (std::uint64_t at = begin + 1; at < end;) {
      InputFile& file = files[all[at]];
      file.size = all[at + 1];
      file.points.resize(all[at + 2]);
      at += 3;
      for (AccessPoint& point : file.points) {
        point = {all[at], all[at + 1]};
        at += 2;
      }
    }
  }
}

void measure_compressed(std::vector<InputFile>& files, std::int64_t threads, Communicator* world) {
  std::vector<std::size_t> compressed;
  for (std::size_t i = 0; i < files.size(); ++i) {
    if (files[i].compression != Compression::none) compressed.push_back(i);
  }
  if (compressed.empty()) return;
  std::stable_sort(compressed.begin(), compressed.end(), [&](std::size_t a, std::size_t b) {
    return files[a].packed_size > files[b].packed_size;
  });
  const std::size_t ranks = world == nullptr ? 1 : static_cast<std::size_t>(world->size());
  const std::size_t rank = world == nullptr ? 0 : static_cast<std::size_t>(world->rank());
  std::vector<std::size_t> mine;
  for (std::size_t i = rank; i < compressed.size(); i += ranks) mine.push_back(compressed[i]);
  const std::size_t useful = std::max<std::size_t>(1, mine.size());
  WorkerPool pool(
      static_cast<int>(std::min(useful, static_cast<std::size_t>(thread_count(threads)))));
  pool.run(
      mine.size(), [&](std::size_t i, int) { measure(files[mine[i]]); }, [] {});
  if (world != nullptr) share(mine, files, *world);
}

/// Bytes to decompress for nothing when reading begins at `offset`.
std::uint64_t cost_of_start(const InputFile& file, std::uint64_t offset) {
  if (file.compression == Compression::none) return 0;
  return offset - nearest_point(file.points, offset).offset;
}

}  // namespace

std::vector<InputFile> inspect_inputs(const std::vector<std::string>& arguments,
                                      std::int64_t threads, Communicator* world) {
  const std::vector<std::filesystem::path> paths = expand_inputs(arguments);
  const std::filesystem::path common = common_folder(paths);
  std::vector<InputFile> files;
  files.reserve(paths.size());
  for (const std::filesystem::path& path : paths) files.push_back(look_at(path, common));
  measure_compressed(files, threads, world);
  return files;
}

std::vector<Partition> plan_partitions(const std::vector<InputFile>& files,
                                       std::uint64_t unit_bytes) {
  std::uint64_t total = 0;
  for (const InputFile& file : files) total += file.size;
  if (total / unit_bytes >= kMaxShards && total > kMaxShards * unit_bytes) {
    fail(
        ErrorKind::usage,
        "--unit-bytes {} would make {} shards of {} bytes of input, at most {} are made: give at least {}",
        unit_bytes, (total - 1) / unit_bytes + 1, total, kMaxShards, (total - 1) / kMaxShards + 1);
  }
  std::vector<Partition> partitions(1);
  std::uint64_t room = unit_bytes;
  for (std::uint32_t file = 0; file < files.size(); ++file) {
    for (std::uint64_t begin = 0; begin < files[file].size;) {
      if (room == 0) {
        partitions.emplace_back();
        room = unit_bytes;
      }
      const std::uint64_t length = std::min(room, files[file].size - begin);
      partitions.back().push_back({file, begin, begin + length});
      begin += length;
      room -= length;
    }
  }
  return partitions;
}

std::vector<std::vector<std::size_t>> chain_partitions(const std::vector<InputFile>& files,
                                                       const std::vector<Partition>& partitions,
                                                       std::uint64_t unit_bytes) {
  std::vector<std::vector<std::size_t>> chains;
  for (std::size_t i = 0; i < partitions.size(); ++i) {
    const bool bound = i != 0 && !partitions[i].empty() && partitions[i].front().begin != 0 &&
                       cost_of_start(files[partitions[i].front().file],
                                     partitions[i].front().begin - 1) > unit_bytes / 4;
    if (!bound) chains.emplace_back();
    chains.back().push_back(i);
  }
  return chains;
}

std::vector<ByteRange> split_chunks(const std::vector<ByteRange>& ranges,
                                    std::uint64_t chunk_bytes) {
  std::vector<ByteRange> chunks;
  for (const ByteRange& range : ranges) {
    for (std::uint64_t begin = range.begin; begin < range.end; begin += chunk_bytes) {
      chunks.push_back({range.file, begin, std::min(range.end, begin + chunk_bytes)});
    }
  }
  return chunks;
}

}  // namespace trireme
