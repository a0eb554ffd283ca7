#include "checkpoint/save/shard_file.hpp"

#include <algorithm>
#include <cstdio>
#include <map>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/hdf5.hpp"
#include "core/hash/crc32c.hpp"
#include "core/process/failpoints.hpp"
#include "core/progress.hpp"

namespace trireme::checkpoint {
namespace {

struct Placed {
  const SliceToWrite* slice = nullptr;
  std::string dataset;
  std::uint64_t at = 0;
};

std::vector<std::uint64_t> dataset_shape(const parallel::Slice& part) {
  if (part.count() != part.rectangle_count()) return {static_cast<std::uint64_t>(part.count())};
  return {part.extent.begin(), part.extent.end()};
}

/// Writes the HDF5 file with all datasets allocated but empty. Returns the slices in file order.
std::vector<Placed> write_skeleton(const std::filesystem::path& path, const ShardIdentity& identity,
                                   std::span<const SliceToWrite> slices) {
  Hdf5File file = Hdf5File::create(path);
  file.set_attribute("format", std::string("trireme-checkpoint"));
  file.set_attribute("version", kCheckpointVersion);
  file.set_attribute("run_id", identity.run_id);
  file.set_attribute("step", static_cast<std::uint64_t>(identity.step));
  file.set_attribute("shard", static_cast<std::uint64_t>(identity.index));
  file.set_attribute("num_shards", static_cast<std::uint64_t>(identity.count));
  std::vector<Placed> placed;
  std::map<std::string, int> seen;
  for (const SliceToWrite& slice : slices) {
    if (slice.num_bytes() == 0) continue;
    const int nth = seen[slice.name]++;
    std::string dataset = "/" + slice.name + (nth == 0 ? "" : formatted("#{}", nth));
    const std::uint64_t at = file.create_dataset(dataset, slice.dtype, dataset_shape(slice.part));
    placed.push_back({&slice, std::move(dataset), at});
  }
  file.close();
  std::sort(placed.begin(), placed.end(),
            [](const Placed& a, const Placed& b) { return a.at < b.at; });
  return placed;
}

/// Reads the metadata that libhdf5 put between the datasets, one byte range per gap, before the raw
/// writes begin.
std::vector<std::vector<std::byte>> read_gaps(const std::filesystem::path& path,
                                              const std::vector<Placed>& placed) {
  const Fd fd = open_read(path);
  std::vector<std::vector<std::byte>> gaps;
  std::uint64_t position = 0;
  const auto read_until = [&](std::uint64_t end) {
    TRIREME_ASSERT(end >= position);
    gaps.emplace_back(end - position);
    read_all(fd.get(), gaps.back(), position, path);
  };
  for (const Placed& one : placed) {
    read_until(one.at);
    position = one.at + one.slice->num_bytes();
  }
  read_until(std::filesystem::file_size(path));
  return gaps;
}

}  // namespace

std::string shard_file_name(const ShardIdentity& identity) {
  char name[64];
  std::snprintf(name, sizeof name, "shard-%05d-of-%05d.h5", identity.index, identity.count);
  return name;
}

CheckpointManifest write_shard_file(const std::filesystem::path& directory,
                                    const ShardIdentity& identity,
                                    std::span<const SliceToWrite> slices,
                                    WriteRateLimit* rate_limit, Progress* progress) {
  const std::string name = shard_file_name(identity);
  const std::filesystem::path path = directory / name;
  failpoint("checkpoint.shard.create");
  const std::vector<Placed> placed = write_skeleton(path, identity, slices);
  failpoint("checkpoint.shard.skeleton");
  const std::vector<std::vector<std::byte>> gaps = read_gaps(path, placed);
  DiskWriter writer(path, rate_limit);
  CheckpointManifest part;
  part.run_id = identity.run_id;
  part.step = identity.step;
  for (const SliceToWrite& slice : slices) {
    part.tensors.try_emplace(slice.name, SavedTensor{slice.dtype, slice.shape, {}});
  }
  std::vector<std::byte> produced;
  for (std::size_t i = 0; i < placed.size(); ++i) {
    writer.append(gaps[i]);
    const SliceToWrite& slice = *placed[i].slice;
    std::span<const std::byte> bytes = slice.bytes;
    if (slice.produce) {
      produced.resize(slice.num_bytes());
      slice.produce(produced);
      bytes = produced;
    }
    part.tensors.at(slice.name)
        .slices.push_back({0, placed[i].dataset, placed[i].at, slice.part,
                           crc32c_hex(writer.append(bytes))});
    if (progress != nullptr) progress->add(static_cast<double>(bytes.size()));
  }
  writer.append(gaps.back());
  const std::uint64_t size = writer.size();
  part.shards.push_back({name, size, writer.finish()});
  failpoint("checkpoint.shard.folder");
  sync_directory(directory);
  failpoint("checkpoint.shard.done");
  return part;
}

}  // namespace trireme::checkpoint
