#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/disk/pace.hpp"
#include "checkpoint/format/manifest.hpp"
#include "core/dtype.hpp"

namespace trireme {

/// One slice to write: raw elements of `part` of the logical tensor `name`.
struct SliceToWrite {
  std::string name;
  DType dtype = DType::f32;
  std::vector<std::int64_t> shape;  // logical, global
  Slice part;
  std::span<const std::byte> bytes;
};

/// Root attributes of a shard file: what it belongs to.
struct ShardIdentity {
  std::string run_id;
  std::int64_t step = 0;
  int index = 0;
  int count = 1;
};

/// "shard-00000-of-00008.h5".
std::string shard_file_name(const ShardIdentity& identity);

/// Writes one HDF5 shard into `folder`: the skeleton through libhdf5, space taken at once, then the
/// raw elements past libhdf5 and the page cache (DiskWriter) while the checksum of each slice and
/// the hash of the file are computed in the same pass, fsync of file and folder. `pace` limits the
/// speed; null: as fast as the disk. No communication; may run on any thread. Equal inputs give
/// equal bytes. A dataset has the slice's shape, or one dim if it is a flat range. Returns the part
/// of the manifest that describes it. Throws Error(resource) when the disk refuses.
CheckpointManifest write_shard_file(const std::filesystem::path& folder,
                                    const ShardIdentity& identity,
                                    std::span<const SliceToWrite> slices,
                                    WritePace* pace = nullptr);

}  // namespace trireme
