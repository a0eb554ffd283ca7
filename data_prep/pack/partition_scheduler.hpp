#pragma once
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "comm/communicator.hpp"

namespace trireme::data_prep {

/// The work of a rank since its last report.
struct PartitionProgress {
  std::uint64_t bytes = 0;  // input bytes
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t bad_lines = 0;
};

/// Groups of partitions, ordered by descending bytes, so that no rank ends long after the others. A
/// rank that took a group gets all of its partitions, one after another.
class PartitionQueue {
 public:
  /// `bytes[partition]`: input bytes. Ties are ordered by the first partition.
  PartitionQueue(std::vector<std::vector<std::size_t>> groups,
                 const std::vector<std::uint64_t>& bytes);

  /// Returns the next partition of `rank`; nullopt if none is left or stop() was called.
  std::optional<std::size_t> next(int rank);

  void stop() noexcept { stopped_ = true; }

 private:
  std::deque<std::deque<std::size_t>> groups_;
  std::map<int, std::deque<std::size_t>> of_rank_;  // the rest of the group of each rank
  bool stopped_ = false;
};

/// Assigns each missing partition to exactly one rank. Shards do not depend on the rank that makes
/// them, so the assignment affects only the time of the slowest rank.
///
/// A free rank gets the next partition: rank 0 keeps the queue and answers the others between its
/// own work (in serve), so an answer takes some milliseconds. All calls must come from the thread
/// that owns `world`. Designed for up to some hundred ranks: rank 0 receives the messages of each
/// rank separately. With `fixed_share`, this rank makes every size-th group from the rank-th on.
/// This needs no messages, and a stop affects only this rank.
class PartitionScheduler {
 public:
  using OnTally = std::function<void(const PartitionProgress&)>;

  /// `bytes[partition]`: input bytes. `on_tally` is called on rank 0 with the work of every rank
  /// (with fixed_share: on each rank with its own work); next, serve or finish rethrow its
  /// exception. Collective.
  PartitionScheduler(comm::Communicator& world, std::vector<std::vector<std::size_t>> groups,
                     const std::vector<std::uint64_t>& bytes, bool fixed_share, OnTally on_tally);
  ~PartitionScheduler();
  PartitionScheduler(const PartitionScheduler&) = delete;
  PartitionScheduler& operator=(const PartitionScheduler&) = delete;

  /// Returns the next partition of this rank; nullopt if none is left or a rank must stop.
  /// `stop`: this rank must stop. `tally`: the work on the previous partition.
  std::optional<std::size_t> next(const PartitionProgress& tally, bool stop);

  /// Answers the other ranks. Call it every few milliseconds while this rank works.
  void serve();

  /// Returns when all ranks know that no partition is left. Call it after next() returned nullopt.
  void finish();

 private:
  struct Ask {
    std::uint64_t stop = 0;
    PartitionProgress tally;
  };

  struct Peer;

  std::optional<std::size_t> ask(const Ask& mine);
  void serve_peer(int rank, Peer& peer);
  void take(const Ask& ask);

  comm::Communicator& world_;
  bool fixed_share_;
  PartitionQueue queue_;
  OnTally on_tally_;
  std::vector<std::unique_ptr<Peer>> peers_;  // [rank - 1], on rank 0
  std::size_t next_peer_ = 0;
  std::size_t open_peers_ = 0;  // number of ranks that do not know yet that none is left
};

}  // namespace trireme::data_prep
