#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/disk/disk_writer.hpp"
#include "checkpoint/format/manifest.hpp"
#include "core/dtype.hpp"

namespace trireme {

class Progress;

}  // namespace trireme

namespace trireme::checkpoint {

/// A slice to write: the raw elements of `part` of the logical tensor `name`.
struct SliceToWrite {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // logical, global
  parallel::Slice part;
  std::span<const std::byte> bytes;
  std::function<void(std::span<std::byte>)> produce = {};  // StateTensor::produce

  [[nodiscard]] std::size_t num_bytes() const {
    return static_cast<std::size_t>(part.count()) * size_of(dtype);
  }
};

/// Root attributes of a shard file; they identify the checkpoint and the shard.
struct ShardIdentity {
  std::string run_id;
  std::int64_t step = 0;
  int index = 0;
  int count = 1;
};

/// Returns "shard-00000-of-00008.h5".
std::string shard_file_name(const ShardIdentity& identity);

/// Writes one HDF5 shard into `directory` and returns the part of the manifest that describes it.
///
/// libhdf5 writes the skeleton and the space is reserved at once. Then DiskWriter writes the raw
/// elements past libhdf5 and the page cache, and computes the checksum of each slice and the hash
/// of the file in the same pass. File and directory are fsynced. A dataset has the shape of the
/// slice, or one dim if the slice is a flat range. Equal inputs give equal bytes.
///   rate_limit  limits the write rate; null: no limit
///   progress    counts the written bytes; may be null
/// Does not communicate; may run on any thread. Throws Error(resource) if a disk operation fails.
CheckpointManifest write_shard_file(const std::filesystem::path& directory,
                                    const ShardIdentity& identity,
                                    std::span<const SliceToWrite> slices,
                                    WriteRateLimit* rate_limit = nullptr,
                                    Progress* progress = nullptr);

}  // namespace trireme::checkpoint
