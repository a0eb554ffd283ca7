#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include "checkpoint/disk/aligned_buffer.hpp"
#include "checkpoint/disk/disk_writer.hpp"
#include "checkpoint/save/save.hpp"

namespace trireme::checkpoint {

/// The background writer of a rank, with at most one save in flight.
///
/// start() returns at once. A thread copies the borrowed tensors and then writes the copy. Nobody
/// may change the tensors until wait_copied() returns. Call wait_copied() right before the next
/// optimizer update, so that the copy overlaps forward and backward. The memory of the copy is kept
/// for the next save. The result contains errors; commit_checkpoint agrees on them.
///
/// Write rate: `mb_per_s`. If it is 0, a save is spread over half the time between the starts of
/// the last two saves (20 s for the first), but not below 100 MB/s. The limit ends when a caller
/// waits.
class AsyncSaver {
 public:
  explicit AsyncSaver(double mb_per_s = 0);
  AsyncSaver(const AsyncSaver&) = delete;
  AsyncSaver& operator=(const AsyncSaver&) = delete;
  ~AsyncSaver();

  /// Allocates and touches the memory of the copy on a thread, so that the first save does not pay
  /// for it. `bytes`: owned bytes of a save. Call it at most once, before the first start. If the
  /// allocation fails, the save tries again.
  void reserve(std::size_t bytes);
  void wait_reserved();

  /// Starts to write a checkpoint staged with copy = false. No save may be in flight.
  void start(StagedCheckpoint staged);

  [[nodiscard]] bool in_flight() const noexcept { return staged_.has_value(); }

  /// Blocks until the tensors of the save in flight are copied. Returns at once if there is none.
  void wait_copied();

  /// Returns true if the thread has ended and its result is ready.
  [[nodiscard]] bool done() const;

  struct Result {
    StagedCheckpoint staged;
    WrittenShard written;
  };

  /// Waits for the writer, without a rate limit. A save must be in flight.
  Result finish();

  /// Keeps the memory of a finished save for the next save.
  void recycle(StagedCheckpoint& staged) { memory_ = std::move(staged.arena); }

  /// Returns the size of the kept copy in bytes: the memory that asynchronous saves need.
  [[nodiscard]] std::size_t memory_bytes() const noexcept;

 private:
  [[nodiscard]] double bytes_per_s(std::uint64_t bytes);
  void run();

  double mb_per_s_;
  std::optional<std::chrono::steady_clock::time_point> last_start_;
  std::optional<StagedCheckpoint> staged_;
  AlignedBuffer memory_;
  std::optional<WriteRateLimit> rate_limit_;
  WrittenShard written_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool copied_ = false;
  bool done_ = false;
  std::atomic<bool> leaving_ = false;
  std::thread thread_;     // writes the save in flight
  std::thread reserving_;  // allocates the memory before the first save
};

}  // namespace trireme::checkpoint
