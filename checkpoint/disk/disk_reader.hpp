#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/disk/aligned_buffer.hpp"
#include "checkpoint/format/manifest.hpp"
#include "core/files/file.hpp"

namespace trireme {

/// Opens a regular file without following a symbolic link or waiting for a pipe's writer, and
/// checks its size. Throws Error(data).
Fd open_recorded(const std::filesystem::path& folder, const SavedFile& file);

/// The whole of a small regular file, opened likewise. Throws Error(data) if it
/// is larger than `max_bytes`.
std::string read_regular(const std::filesystem::path& path, std::uint64_t max_bytes);

/// A recorded file, read in large pieces: past the page cache (O_DIRECT) when it is not in it
/// already, which takes a fraction of the processor time and leaves other files cached. Any number
/// of threads may read.
class DiskReader {
 public:
  DiskReader(const std::filesystem::path& folder, const SavedFile& file);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  /// Bytes [at, at + bytes), somewhere in `buffer`, which grows as needed. Throws Error(data) if
  /// the file ends before, Error(resource) if the disk refuses.
  std::span<const std::byte> read(std::uint64_t at, std::size_t bytes, AlignedBuffer& buffer) const;

 private:
  std::filesystem::path path_;
  std::uint64_t size_;
  Fd plain_;
  Fd direct_;  // null: through the page cache
};

/// A whole file in order, read ahead by threads of its own.
class DiskStream {
 public:
  explicit DiskStream(const DiskReader& reader);
  DiskStream(const DiskStream&) = delete;
  DiskStream& operator=(const DiskStream&) = delete;
  ~DiskStream();

  /// The next piece, valid until the next call; empty at the end. Throws as DiskReader::read.
  std::span<const std::byte> next();

 private:
  struct Piece {
    AlignedBuffer buffer;
    std::span<const std::byte> bytes;
    std::exception_ptr error;
  };

  void read_ahead() noexcept;

  const DiskReader* reader_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Piece> ready_;  // by number
  std::vector<AlignedBuffer> free_;
  std::uint64_t num_pieces_;
  std::uint64_t wanted_ = 0;  // number of the piece that next() gives next
  std::uint64_t begun_ = 0;   // pieces that a thread has taken
  bool stop_ = false;
  Piece current_;
  std::vector<std::jthread> threads_;
};

/// XXH3-128 of the whole file; `see` is given its bytes in order.
std::string hash_recorded(const std::filesystem::path& folder, const SavedFile& file,
                          const std::function<void(std::span<const std::byte>)>& see);

}  // namespace trireme
