#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "comm/shared/shared_window.hpp"

/// Rings of chunks in shared memory, through which the ranks of one group pass data.
///
/// Each rank writes one ring for each other rank and one ring that all other ranks read. A ring has
/// a few chunks. The writer waits until every reader has released the oldest chunk. The counts only
/// grow, so a ring serves all operations of the group one after another.
namespace trireme::comm {

/// Chunks of a ring: while the readers read one chunk, the writer fills others.
inline constexpr std::size_t kRingChunks = 8;

/// A count that one rank changes and others read, on a cache line of its own.
struct alignas(64) RingCount {
  std::atomic<std::uint64_t> value;
};

/// The writer's side of a ring in shared memory.
struct alignas(64) RingHead {
  std::atomic<std::uint64_t> written;            // chunks so far
  std::array<std::uint64_t, kRingChunks> bytes;  // operation size of each chunk
};

/// Writes one ring.
class RingWriter {
 public:
  RingWriter(RingHead* head, std::vector<RingCount*> readers, std::byte* chunks,
             std::uint64_t chunk_bytes)
      : head_(head), readers_(std::move(readers)), chunks_(chunks), chunk_bytes_(chunk_bytes) {}

  /// Returns the memory of the next chunk, or null while a reader still needs it.
  [[nodiscard]] std::byte* free_chunk();

  /// Passes the next chunk to the readers. It belongs to an operation of `operation_bytes`.
  void publish(std::uint64_t operation_bytes);

  [[nodiscard]] std::size_t num_readers() const { return readers_.size(); }

 private:
  RingHead* head_;
  std::vector<RingCount*> readers_;
  std::byte* chunks_;
  std::uint64_t chunk_bytes_;
  std::uint64_t written_ = 0;
  std::uint64_t released_ = 0;  // by all readers, last value seen
};

/// Reads one ring.
class RingReader {
 public:
  RingReader(int writer, const RingHead* head, RingCount* released, const std::byte* chunks,
             std::uint64_t chunk_bytes)
      : writer_(writer),
        head_(head),
        released_(released),
        chunks_(chunks),
        chunk_bytes_(chunk_bytes) {}

  /// Returns the next chunk, or null if it is not written yet. Throws Error(usage) if the operation
  /// of its writer does not have `operation_bytes`.
  [[nodiscard]] const std::byte* chunk(std::uint64_t operation_bytes);

  /// Gives the chunk back to the writer.
  void release();

 private:
  int writer_;
  const RingHead* head_;
  RingCount* released_;
  const std::byte* chunks_;
  std::uint64_t chunk_bytes_;
  std::uint64_t read_ = 0;
  std::uint64_t written_ = 0;  // last value seen
};

/// The sizes of the window of a group. Each rank has a segment with the rings that it writes.
struct RingLayout {
  std::uint64_t ranks = 1;
  std::uint64_t chunk_bytes = 0;  // a multiple of 64

  /// Returns the layout for rings of about `ring_bytes`. With more than 4 ranks, the rings are
  /// smaller, so that a segment has about 4 times `ring_bytes`. A chunk has 4 KiB or more and at
  /// most `most_chunk_bytes`, rounded up to cache lines.
  static RingLayout of(int ranks, std::uint64_t ring_bytes, std::uint64_t most_chunk_bytes);

  [[nodiscard]] std::uint64_t segment_bytes() const;  // a multiple of the page size

  [[nodiscard]] std::uint64_t window_bytes() const { return ranks * segment_bytes(); }
};

/// The rings of one rank of a group. Only the thread that owns the rank uses them.
class SharedRings {
 public:
  /// `window` has layout.window_bytes() bytes, which were 0 before the first rank used them.
  /// `spins`: a rank may keep its core while it waits for a chunk, because no other rank needs it.
  SharedRings(std::unique_ptr<SharedWindow> window, const RingLayout& layout, int rank, bool spins);

  [[nodiscard]] int rank() const { return rank_; }

  [[nodiscard]] int size() const { return static_cast<int>(layout_.ranks); }

  [[nodiscard]] bool spins() const { return spins_; }

  [[nodiscard]] std::uint64_t chunk_bytes() const { return layout_.chunk_bytes; }

  /// Returns the ring to one other rank.
  [[nodiscard]] RingWriter& to(int rank) { return to_[static_cast<std::size_t>(rank)]; }

  /// Returns the ring that all other ranks read.
  [[nodiscard]] RingWriter& to_all() { return to(rank_); }

  /// Returns the ring from another rank to this rank.
  [[nodiscard]] RingReader& from(int rank) { return from_[static_cast<std::size_t>(rank)]; }

  /// Returns the ring from another rank to all ranks.
  [[nodiscard]] RingReader& all_from(int rank) { return all_from_[static_cast<std::size_t>(rank)]; }

  /// The operations of a group use the rings in the order of their start. Returns the turn of a new
  /// operation.
  [[nodiscard]] std::uint64_t next_turn() { return started_++; }

  /// Returns true if all earlier operations are complete. Throws Error(comm) if one of them ended
  /// early, because the rings then hold chunks that nobody reads.
  [[nodiscard]] bool is_turn(std::uint64_t turn) const;

  void complete_turn() { ++completed_; }

  void abandon() { abandoned_ = true; }

 private:
  const std::unique_ptr<SharedWindow> window_;
  const RingLayout layout_;
  const int rank_;
  const bool spins_;
  std::vector<RingWriter> to_;
  std::vector<RingReader> from_;      // the entry of this rank is not used
  std::vector<RingReader> all_from_;  // the entry of this rank is not used
  std::uint64_t started_ = 0;
  std::uint64_t completed_ = 0;
  bool abandoned_ = false;
};

}  // namespace trireme::comm
