#include "checkpoint/slice_reader.hpp"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.hpp"
#include "core/hash.hpp"

namespace trireme {
namespace {

// A multiple of every element size; small enough to be hashed while still in the cache.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

constexpr off_t kAheadBytes = off_t{8} << 20;

/// The runs of one target, consumed in the order of the slice.
struct Cursor {
  std::vector<ShardRun> runs;
  std::size_t next = 0;
  std::span<std::byte> bytes;
};

/// The place of slice elements [begin, begin + count) where one target wants all of them in a row:
/// they are read there, without a copy. Empty otherwise.
std::span<std::byte> direct_place(std::span<const Cursor> cursors,
                                  std::int64_t begin,
                                  std::int64_t count,
                                  std::size_t element) {
  if (cursors.size() != 1 || cursors[0].next == cursors[0].runs.size()) return {};
  const ShardRun& run = cursors[0].runs[cursors[0].next];
  if (begin < run.source_index || begin + count > run.source_index + run.count) return {};
  const auto at = static_cast<std::size_t>(run.target_index + begin - run.source_index) * element;
  return cursors[0].bytes.subspan(at, static_cast<std::size_t>(count) * element);
}

/// Copies what lies in slice elements [begin, begin + count), given as `piece`.
void scatter(Cursor& cursor,
             std::span<const std::byte> piece,
             std::int64_t begin,
             std::size_t element) {
  const std::int64_t end = begin + static_cast<std::int64_t>(piece.size() / element);
  while (cursor.next < cursor.runs.size()) {
    const ShardRun& run = cursor.runs[cursor.next];
    const std::int64_t from = std::max(begin, run.source_index);
    const std::int64_t to = std::min(end, run.source_index + run.count);
    if (from < to) {
      const auto at =
          static_cast<std::size_t>(run.target_index + from - run.source_index) * element;
      const std::byte* source = piece.data() + static_cast<std::size_t>(from - begin) * element;
      std::byte* target = cursor.bytes.data() + at;
      if (target != source)
        std::memcpy(target, source, static_cast<std::size_t>(to - from) * element);
    }
    if (run.source_index + run.count > end) return;
    ++cursor.next;
  }
}

}  // namespace

Fd open_recorded(const std::filesystem::path& folder, const SavedFile& file) {
  const std::filesystem::path path = folder / file.name;
  Fd fd(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK));
  if (!fd) {
    const bool bad = errno == ENOENT || errno == ELOOP || errno == ENOTDIR || errno == ENXIO;
    fail(bad ? ErrorKind::data : ErrorKind::resource,
         "cannot open ",
         path.string(),
         ": ",
         std::strerror(errno));
  }

  struct stat info {};

  if (::fstat(fd.get(), &info) != 0)
    fail(ErrorKind::resource, "cannot stat ", path.string(), ": ", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) fail(ErrorKind::data, path.string(), " is not a regular file");
  if (static_cast<std::uint64_t>(info.st_size) != file.bytes) {
    fail(ErrorKind::data,
         path.string(),
         " has ",
         info.st_size,
         " bytes, the manifest says ",
         file.bytes);
  }
  return fd;
}

SliceReader::SliceReader(std::filesystem::path folder, const CheckpointManifest& manifest)
    : folder_(std::move(folder)), manifest_(&manifest) {}

void SliceReader::open_shard(std::uint64_t index) {
  if (open_index_ == index) return;
  const SavedFile& shard = manifest_->shards.at(index);
  fd_ = open_recorded(folder_, shard);
  open_path_ = folder_ / shard.name;
  open_index_ = index;
  (void)::posix_fadvise(fd_.get(), 0, 0, POSIX_FADV_SEQUENTIAL);  // a hint
}

void SliceReader::read(const std::string& name,
                       const SavedTensor& tensor,
                       const SavedSlice& slice,
                       std::span<const ReadTarget> targets) {
  std::vector<Cursor> cursors;
  for (const ReadTarget& target : targets) {
    std::vector<ShardRun> runs = intersect(tensor.shape, slice.part, target.part);
    if (!runs.empty()) cursors.push_back({std::move(runs), 0, target.bytes});
  }
  if (cursors.empty()) return;
  open_shard(slice.shard);
  const std::size_t element = size_of(tensor.dtype);
  const std::uint64_t total = static_cast<std::uint64_t>(slice.part.count()) * element;
  piece_.resize(std::min<std::uint64_t>(kPieceBytes, total));
  Hasher hasher;
  const auto want = [&](std::uint64_t begin) {  // the disk works while we hash; a hint
    if (begin >= total) return;
    (void)::posix_fadvise(
        fd_.get(), static_cast<off_t>(slice.at + begin), kAheadBytes, POSIX_FADV_WILLNEED);
  };
  want(0);
  for (std::uint64_t done = 0; done < total; done += kPieceBytes) {
    if (done % kAheadBytes == 0) want(done + kAheadBytes);
    const std::uint64_t size = std::min<std::uint64_t>(kPieceBytes, total - done);
    auto piece = direct_place(cursors,
                              static_cast<std::int64_t>(done / element),
                              static_cast<std::int64_t>(size / element),
                              element);
    if (piece.empty()) piece = std::span(piece_).first(size);
    read_all(fd_.get(), piece, slice.at + done, open_path_);
    hasher.update(piece);
    for (Cursor& cursor : cursors)
      scatter(cursor, piece, static_cast<std::int64_t>(done / element), element);
  }
  const std::string computed = hasher.hex();
  if (computed != slice.hash) {
    fail(ErrorKind::data,
         open_path_.string(),
         ": tensor ",
         name,
         " is damaged: its hash is ",
         computed,
         ", the manifest says ",
         slice.hash);
  }
}

}  // namespace trireme
