#pragma once
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <thread>

#include "checkpoint/disk/aligned_buffer.hpp"
#include "checkpoint/disk/pace.hpp"
#include "checkpoint/save/save.hpp"

namespace trireme {

/// A rank's background writer: at most one save in flight, as slow as training needs it.
///
/// start() returns at once. A thread copies the borrowed tensors away, then writes them. Until
/// wait_copied() returns, nobody may change the tensors: call it right before the optimizer's next
/// update, so that the copy overlaps the forward and backward pass, or at once. The copy's memory
/// stays for the next save. Errors wait in the result, which is agreed by commit_checkpoint.
///
/// Speed: `mb_per_s`, or with 0 by a rule: a save is spread over half the time between the starts
/// of the last two saves (20 s for the first), but not below 100 MB/s; at once when somebody waits.
class WriteBehind {
 public:
  explicit WriteBehind(double mb_per_s = 0);
  WriteBehind(const WriteBehind&) = delete;
  WriteBehind& operator=(const WriteBehind&) = delete;
  ~WriteBehind();

  /// Makes the copy's memory on a thread and touches it, so that the first save does not pay for
  /// that. For the owned bytes of a save; at most once, before the first start. Where the system
  /// refuses it, the save asks again.
  void reserve(std::size_t bytes);
  void wait_reserved();

  /// A checkpoint staged with copy = false. Nothing may be in flight.
  void start(StagedCheckpoint staged);

  [[nodiscard]] bool in_flight() const noexcept { return staged_.has_value(); }

  /// Blocks until the tensors of the save in flight are copied; at once if there is none.
  void wait_copied();

  /// True when the thread has ended and its result waits.
  [[nodiscard]] bool done() const;

  struct Result {
    StagedCheckpoint staged;
    WrittenShard written;
  };

  /// Waits for the writer, at full speed from now on. Something must be in flight.
  Result finish();

  /// Keeps a finished save's memory for the next one.
  void recycle(StagedCheckpoint& staged) { memory_ = std::move(staged.arena); }

  /// Bytes of the copy that is kept: what saving behind training costs beside the state.
  [[nodiscard]] std::size_t memory_bytes() const noexcept;

 private:
  [[nodiscard]] double bytes_per_s(std::uint64_t bytes);
  void run();

  double mb_per_s_;
  std::optional<std::chrono::steady_clock::time_point> last_start_;
  std::optional<StagedCheckpoint> staged_;
  AlignedBuffer memory_;
  std::optional<WritePace> pace_;
  WrittenShard written_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool copied_ = false;
  bool done_ = false;
  std::atomic<bool> leaving_ = false;
  std::thread thread_;     // of the save in flight
  std::thread reserving_;  // its memory, before the first one
};

}  // namespace trireme
