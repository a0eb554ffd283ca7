#include "checkpoint/shard_file.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <map>

#include "core/error.hpp"
#include "core/failpoints.hpp"
#include "core/file.hpp"
#include "core/hash.hpp"
#include "core/hdf5.hpp"

namespace trireme {
namespace {

constexpr std::size_t kPiece = std::size_t{1}
                               << 20;  // stays in cache between the two hashes and the write
constexpr std::uint64_t kWriteback = std::uint64_t{8}
                                     << 20;  // the disk starts while we still write

struct Placed {
  const SliceToWrite* slice = nullptr;
  std::string dataset;
  std::uint64_t at = 0;
};

std::vector<std::uint64_t> dataset_shape(const Shard& part) {
  if (part.count() != part.rectangle_count()) return {static_cast<std::uint64_t>(part.count())};
  return {part.extent.begin(), part.extent.end()};
}

/// The HDF5 file with all datasets allocated and nothing in them; slices in file order.
std::vector<Placed> write_skeleton(const std::filesystem::path& path,
                                   const ShardIdentity& identity,
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
    if (slice.bytes.empty()) continue;
    const int nth = seen[slice.name]++;
    std::string dataset = "/" + slice.name + (nth == 0 ? "" : cat("#", nth));
    const std::uint64_t at = file.create_dataset(dataset, slice.dtype, dataset_shape(slice.part));
    placed.push_back({&slice, std::move(dataset), at});
  }
  file.close();
  std::sort(
      placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.at < b.at; });
  return placed;
}

/// Writes slices and hashes the file from its first byte to its last, in one pass.
class ShardStream {
 public:
  explicit ShardStream(const std::filesystem::path& path)
      : path_(path), fd_(::open(path.c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC)) {
    struct stat info {};

    if (!fd_ || ::fstat(fd_.get(), &info) != 0)
      fail(ErrorKind::resource, "cannot reopen ", path.string(), ": ", std::strerror(errno));
    size_ = static_cast<std::uint64_t>(info.st_size);
    const int code = size_ == 0 ? 0 : ::posix_fallocate(fd_.get(), 0, info.st_size);
    if (code != 0)
      fail(ErrorKind::resource,
           "cannot reserve ",
           size_,
           " bytes for ",
           path.string(),
           ": ",
           std::strerror(code));
  }

  /// The slice's hash.
  std::string write(const Placed& placed) {
    const std::span<const std::byte> bytes = placed.slice->bytes;
    TRIREME_ASSERT(placed.at >= position_ && placed.at + bytes.size() <= size_);
    hash_existing(placed.at);
    Hasher slice_hash;
    for (std::size_t done = 0; done < bytes.size(); done += kPiece) {
      const auto piece = bytes.subspan(done, std::min(kPiece, bytes.size() - done));
      failpoint("checkpoint.shard.write");
      slice_hash.update(piece);
      file_hash_.update(piece);
      write_all(fd_.get(), piece, position_, path_);
      position_ += piece.size();
      start_writeback();
    }
    return slice_hash.hex();
  }

  SavedFile finish(const std::string& name) {
    hash_existing(size_);
    failpoint("checkpoint.shard.sync");
    sync_file(fd_.get(), path_);
    if (::close(fd_.release()) != 0)
      fail(ErrorKind::resource, "cannot close ", path_.string(), ": ", std::strerror(errno));
    return {name, size_, file_hash_.hex()};
  }

 private:
  /// What libhdf5 wrote between our data: its metadata.
  void hash_existing(std::uint64_t end) {
    std::vector<std::byte> buffer;
    while (position_ < end) {
      buffer.resize(std::min<std::uint64_t>(kPiece, end - position_));
      read_all(fd_.get(), buffer, position_, path_);
      file_hash_.update(buffer);
      position_ += buffer.size();
    }
  }

  void start_writeback() {
    if (position_ - written_back_ < kWriteback) return;
    // Only a hint: fsync at the end is what counts.
    (void)::sync_file_range(fd_.get(),
                            static_cast<off_t>(written_back_),
                            static_cast<off_t>(position_ - written_back_),
                            SYNC_FILE_RANGE_WRITE);
    written_back_ = position_;
  }

  std::filesystem::path path_;
  Fd fd_;
  Hasher file_hash_;
  std::uint64_t size_ = 0;
  std::uint64_t position_ = 0;
  std::uint64_t written_back_ = 0;
};

}  // namespace

std::string shard_file_name(const ShardIdentity& identity) {
  char name[64];
  std::snprintf(name, sizeof name, "shard-%05d-of-%05d.h5", identity.index, identity.count);
  return name;
}

CheckpointManifest write_shard_file(const std::filesystem::path& folder,
                                    const ShardIdentity& identity,
                                    std::span<const SliceToWrite> slices) {
  const std::string name = shard_file_name(identity);
  const std::filesystem::path path = folder / name;
  failpoint("checkpoint.shard.create");
  const std::vector<Placed> placed = write_skeleton(path, identity, slices);
  failpoint("checkpoint.shard.skeleton");
  ShardStream stream(path);
  CheckpointManifest part;
  part.run_id = identity.run_id;
  part.step = identity.step;
  for (const SliceToWrite& slice : slices) {
    part.tensors.try_emplace(slice.name, SavedTensor{slice.dtype, slice.shape, {}});
  }
  for (const Placed& one : placed) {
    const SliceToWrite& slice = *one.slice;
    SavedTensor& tensor = part.tensors.at(slice.name);
    tensor.slices.push_back({0, one.dataset, one.at, slice.part, stream.write(one)});
  }
  part.shards.push_back(stream.finish(name));
  failpoint("checkpoint.shard.folder");
  sync_folder(folder);
  failpoint("checkpoint.shard.done");
  return part;
}

}  // namespace trireme
