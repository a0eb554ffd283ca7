#pragma once
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <filesystem>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/disk/aligned_buffer.hpp"
#include "core/files/file.hpp"
#include "core/hash/xxh3.hpp"

namespace trireme::checkpoint {

/// Limits the write rate of a writer thread, so that training keeps its share of disk and cores.
/// Thread-safe. Uses the steady clock: setting the system clock has no effect.
class WriteRateLimit {
 public:
  /// Sets the limit in bytes per second; 0 means no limit.
  explicit WriteRateLimit(double bytes_per_s = 0) : bytes_per_s_(bytes_per_s) {}

  /// Blocks until the limit allows `bytes` more.
  void spend(std::uint64_t bytes);

  /// Removes the limit, because a caller now waits for the writer.
  void lift();

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  double bytes_per_s_;
  std::chrono::steady_clock::time_point free_at_{};  // earliest time of the next write
};

/// Rewrites an existing file of a known size from its first byte to its last and hashes the bytes.
///
/// The caller's bytes are copied into a ring of four buffers of 4 MiB. Two threads write full
/// buffers past the page cache (O_DIRECT) if the file system supports it, else through the page
/// cache. The disk therefore works while the caller copies and hashes, and a save does not evict
/// other files from the page cache. Throws Error(resource) if a disk operation fails; the caller's
/// next call rethrows the error of a thread.
class DiskWriter {
 public:
  /// `rate_limit` may be null (no limit). It must outlive the writer.
  DiskWriter(const std::filesystem::path& path, WriteRateLimit* rate_limit);
  DiskWriter(const DiskWriter&) = delete;
  DiskWriter& operator=(const DiskWriter&) = delete;
  ~DiskWriter();

  [[nodiscard]] std::uint64_t size() const noexcept { return size_; }

  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }

  /// Returns the crc32c of `bytes`, computed while the bytes are in the CPU cache.
  std::uint32_t append(std::span<const std::byte> bytes);

  /// Waits for the threads, fsyncs and closes the file. All bytes of the file must have been
  /// appended. Returns the XXH3-128 of the whole file.
  std::string finish();

 private:
  struct Buffer {
    AlignedBuffer memory;
    std::uint64_t at = 0;
    std::size_t bytes = 0;
  };

  void hand_over();
  void take_free_buffer();
  void write_buffers() noexcept;
  void write_buffer(const Buffer& buffer);
  void stop() noexcept;
  void rethrow_locked();

  std::filesystem::path path_;
  WriteRateLimit* rate_limit_;
  Fd plain_;
  Fd direct_;  // null if the file system has no O_DIRECT
  std::uint64_t size_ = 0;
  std::uint64_t position_ = 0;
  Hasher hasher_;
  std::unique_ptr<Buffer> current_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::unique_ptr<Buffer>> full_;
  std::deque<std::unique_ptr<Buffer>> free_;
  int in_write_ = 0;
  bool stop_ = false;
  std::exception_ptr error_;
  std::vector<std::jthread> threads_;
};

}  // namespace trireme::checkpoint
