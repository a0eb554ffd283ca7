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

namespace trireme {

/// What a rank did since it last said so.
struct PartitionTally {
  std::uint64_t bytes = 0;  // of input
  std::uint64_t documents = 0;
  std::uint64_t tokens = 0;
  std::uint64_t bad_lines = 0;
};

/// Groups of partitions in the order they are handed out: the one with most bytes first, so that no
/// rank ends long after the others. A rank that took a group gets all of its partitions, one after
/// another.
class PartitionQueue {
 public:
  /// `bytes[partition]` of input; ties go by the first partition.
  PartitionQueue(std::vector<std::vector<std::size_t>> groups,
                 const std::vector<std::uint64_t>& bytes);

  /// The next partition of `rank`, or none when all are handed out or stop() was called.
  std::optional<std::size_t> next(int rank);

  void stop() noexcept { stopped_ = true; }

 private:
  std::deque<std::deque<std::size_t>> groups_;
  std::map<int, std::deque<std::size_t>> of_rank_;  // what is left of the group of each
  bool stopped_ = false;
};

/// Hands out the partitions that are still to do, each exactly once over all who ask. Shards do not
/// depend on who makes them, so any rule of sharing is right; what it decides is only how long the
/// slowest rank takes.
///
/// Whoever is free gets the next partition: rank 0 keeps the queue and answers the others between
/// its own work (from serve), so an answer takes some milliseconds. All calls from the thread that
/// owns `world`. Meant for up to some hundred ranks: rank 0 asks for each rank's message by itself.
/// With a fixed share instead every size-th group from the rank-th on is this rank's. That needs no
/// messages; a stop concerns this rank alone.
class PartitionScheduler {
 public:
  using OnTally = std::function<void(const PartitionTally&)>;

  /// Collective. `bytes[partition]` of input. `on_tally` is called on rank 0 with what every rank
  /// did (fixed share: on each rank with its own work); an exception of it passes through next,
  /// serve or finish.
  PartitionScheduler(Communicator& world, std::vector<std::vector<std::size_t>> groups,
                     const std::vector<std::uint64_t>& bytes, bool fixed_share, OnTally on_tally);
  ~PartitionScheduler();
  PartitionScheduler(const PartitionScheduler&) = delete;
  PartitionScheduler& operator=(const PartitionScheduler&) = delete;
  PartitionScheduler(PartitionScheduler&&) = delete;
  PartitionScheduler& operator=(PartitionScheduler&&) = delete;

  /// The next partition of this rank, or none: nothing is left, or somebody was asked to stop
  /// (`stop`: this rank was). `tally`: of the partition before.
  std::optional<std::size_t> next(const PartitionTally& tally, bool stop);

  /// To be called every few milliseconds while this rank works: answers the others.
  void serve();

  /// After next() gave none: returns when all ranks have been told so.
  void finish();

 private:
  struct Ask {
    std::uint64_t stop = 0;
    PartitionTally tally;
  };

  struct Peer;

  std::optional<std::size_t> ask(const Ask& mine);
  void serve_peer(int rank, Peer& peer);
  void take(const Ask& ask);

  Communicator& world_;
  bool fixed_share_;
  PartitionQueue queue_;
  OnTally on_tally_;
  std::vector<std::unique_ptr<Peer>> peers_;  // [rank - 1], on rank 0
  std::size_t next_peer_ = 0;
  std::size_t open_peers_ = 0;  // not yet told that nothing is left
};

}  // namespace trireme
