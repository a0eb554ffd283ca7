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

namespace trireme::checkpoint {

/// Opens a regular file and checks its size. Does not follow a symbolic link and does not wait for
/// the writer of a pipe. Throws Error(data).
Fd open_recorded(const std::filesystem::path& directory, const SavedFile& file);

/// Returns the content of a small regular file, opened like open_recorded does. Throws Error(data)
/// if the file is larger than `max_bytes`.
std::string read_regular(const std::filesystem::path& path, std::uint64_t max_bytes);

/// Reads a recorded file in large blocks. If the file is not cached, the reads go past the page
/// cache (O_DIRECT): this takes a fraction of the CPU time and does not evict other files from the
/// cache. Thread-safe.
class DiskReader {
 public:
  DiskReader(const std::filesystem::path& directory, const SavedFile& file);

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  /// Returns bytes [at, at + bytes) as a view into `buffer`, which grows if needed. Throws
  /// Error(data) if the file ends earlier, Error(resource) if a disk operation fails.
  std::span<const std::byte> read(std::uint64_t at, std::size_t bytes, AlignedBuffer& buffer) const;

 private:
  std::filesystem::path path_;
  std::uint64_t size_;
  Fd plain_;
  Fd direct_;  // null: reads go through the page cache
};

/// Reads a whole file in order. Own threads read ahead.
class DiskStream {
 public:
  explicit DiskStream(const DiskReader& reader);
  DiskStream(const DiskStream&) = delete;
  DiskStream& operator=(const DiskStream&) = delete;
  ~DiskStream();

  /// Returns the next block, valid until the next call; empty at the end. Throws like
  /// DiskReader::read.
  std::span<const std::byte> next();

 private:
  struct Block {
    AlignedBuffer buffer;
    std::span<const std::byte> bytes;
    std::exception_ptr error;
  };

  void read_ahead() noexcept;

  const DiskReader* reader_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::uint64_t, Block> ready_;  // key: block number
  std::vector<AlignedBuffer> free_;
  std::uint64_t num_blocks_;
  std::uint64_t wanted_ = 0;  // number of the block that next() returns next
  std::uint64_t begun_ = 0;   // number of blocks that a thread has started to read
  bool stop_ = false;
  Block current_;
  std::vector<std::jthread> threads_;
};

/// Returns the XXH3-128 of the whole file. StageExecutor the bytes of the file to `see`, in order.
std::string hash_recorded(const std::filesystem::path& directory, const SavedFile& file,
                          const std::function<void(std::span<const std::byte>)>& see);

}  // namespace trireme::checkpoint
