#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/requests.hpp"

/// Communication between ranks over one of four backends (self, thread, mpi, nccl).
///
/// Contract of every collective, for all backends:
/// - A call enqueues the operation and returns Work; it may return before completion. Buffers
///   must not be touched until Work::wait() returns.
/// - All ranks of the group call the same operations in the same order with matching sizes.
///   `exchange` is an exception: only the ranks that take part call it. If two ranks exchange
///   several messages, send i of one rank matches receive i of the other.
/// - Input and output may be the same buffer (for reduce_scatter and all_gather: the smaller buffer
///   may be this rank's part of the larger one), but not for all_to_all. Otherwise buffers must not
///   overlap.
/// - An unsupported dtype or operation throws Error(usage) before any byte moves. Counts are
///   64-bit; backends split long buffers.
/// - If an operation is not complete within the timeout of the group, its Work throws Error(comm)
///   with operation, group, sequence number and bytes.
/// - Progress: nccl makes progress on the device. mpi makes progress only inside calls of this
///   interface (any call, or Work::poll). Small operations over many ranks run in rounds, so a rank
///   that makes no calls delays other ranks.
/// - Sums of bf16 and f16 accumulate in f32 and round at most once per combination of two ranks.
/// - A group of the mpi backend with all ranks on one node passes large buffers through shared
///   memory (shared/), with the same bits.
/// - All ranks get bit-for-bit equal results, and a repeated call gives the same bits. On self,
///   thread and mpi, every element is added in rank order 0, 1, 2, ... Therefore reduce_scatter
///   gives the same bits as all_reduce, and a split into buckets does not change them. Exception:
///   with CommOptions::mpi_reduce = library, MPI chooses the order.
namespace trireme::comm {

/// One pending operation. The destructor waits, because the buffers may be in use.
class Work {
 public:
  virtual ~Work() = default;

  /// Makes progress without blocking; returns true if complete. Throws like wait().
  virtual bool poll() = 0;

  /// Blocks until the operation is complete. On nccl it only makes the caller's stream wait for the
  /// operation and does not block the host.
  virtual void wait() = 0;
};

using WorkPtr = std::unique_ptr<Work>;

/// One record of the flight recorder.
struct CommRecord {
  std::uint64_t sequence = 0;  // counts this group's operations from 1
  std::string operation;       // "all_reduce"
  std::string tag;             // the caller's name for the operation: "grads bucket 3"
  std::uint64_t bytes = 0;     // payload of this rank
  bool complete = false;
};

/// Totals of one rank in one group for one operation and purpose. The code that sends a message
/// also counts it. If a library sends the messages (nccl, or mpi_reduce = library), moved_bytes and
/// messages are absent.
struct TrafficRow {
  std::string operation;                     // "all_reduce"
  std::string purpose;                       // the tag without a trailing number: "grads bucket"
  std::uint64_t count = 0;                   // calls
  std::uint64_t payload_bytes = 0;           // the sum of CommRecord::bytes
  std::optional<std::uint64_t> moved_bytes;  // sent to other ranks
  std::optional<std::uint64_t> messages;     // messages that carried moved_bytes
};

class Communicator {
 public:
  virtual ~Communicator() = default;
  Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] virtual int rank() const = 0;
  [[nodiscard]] virtual int size() const = 0;
  [[nodiscard]] virtual const std::string& name() const = 0;  // "world", "dp", ...
  [[nodiscard]] virtual const char* backend() const = 0;      // "self", "thread", "mpi", "nccl"

  /// Returns true if collectives of large buffers go through shared memory.
  [[nodiscard]] virtual bool shares_memory() const { return false; }

  /// Computes output[i] = op over ranks of input[i], on every rank.
  [[nodiscard]] virtual WorkPtr all_reduce(const Reduction& request) = 0;

  /// Reduces the input over ranks. The output of this rank is part rank() of the result.
  [[nodiscard]] virtual WorkPtr reduce_scatter(const Reduction& request) = 0;

  [[nodiscard]] virtual WorkPtr all_gather(const AllGather& request) = 0;
  [[nodiscard]] virtual WorkPtr broadcast(const Broadcast& request) = 0;
  [[nodiscard]] virtual WorkPtr all_to_all(const AllToAll& request) = 0;
  [[nodiscard]] virtual WorkPtr exchange(const Exchange& request) = 0;

  /// Returns when all ranks of the group have called it.
  virtual void barrier(const Barrier& request = {}) = 0;

  /// Collective. Ranks with the same color form a group, ordered by (key, rank). A rank with a
  /// negative color joins no group and gets null.
  [[nodiscard]] virtual std::unique_ptr<Communicator> split(int color, int key,
                                                            const std::string& name) = 0;

  /// Returns the totals since the group was created, by operation and purpose. Use
  /// traffic_between() for an interval.
  [[nodiscard]] virtual std::vector<TrafficRow> traffic() const = 0;
  /// Returns the last operations of this group, oldest first (a bounded ring).
  [[nodiscard]] virtual std::vector<CommRecord> recent() const = 0;
};

}  // namespace trireme::comm
