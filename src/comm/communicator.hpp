#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/requests.hpp"

/// Bytes between ranks: one interface, four backends (self, thread, mpi, nccl), chosen at run time.
///
/// Contract of every collective, all backends:
/// - It enqueues and returns Work; the call may return before completion. Buffers stay untouched
///   until Work::wait.
/// - All ranks of the group call the same operations in the same order with matching sizes.
///   `exchange` alone concerns only the ranks that it names; between two ranks its messages match
///   in the order both list them.
/// - In place is allowed where input and output pointers are equal (reduce_scatter, all_gather:
///   equal to this rank's part); all_to_all is never in place. Buffers must not overlap otherwise.
/// - Unsupported dtype or op throws Error(usage) before any byte moves. Counts are 64-bit; backends
///   split what is too long.
/// - A Work not completed within the group's timeout throws Error(comm) naming operation, group,
///   sequence number, bytes.
/// - Progress: on mpi only inside calls of this interface (any call, or Work::poll); on nccl by the
///   device. Few bytes on many ranks travel in rounds: a rank that makes no call holds up the next.
/// - sum of bf16 and f16 is accumulated in f32 and rounded at most once per combination of two
///   ranks.
/// - All ranks get the same bits, and a repeated call gives the same bits. On self, thread and mpi
///   the additions run in rank order 0, 1, 2, ... for every element, so reduce_scatter and any
///   cutting into buckets give the same bits too (CommOptions::mpi_reduce = library leaves the order
///   to MPI).
namespace trireme {

/// One pending operation. Destroying an incomplete Work waits for it (the buffers may be in use).
class Work {
 public:
  virtual ~Work() = default;

  /// Drives progress without blocking; true when complete. Throws as wait.
  virtual bool poll() = 0;

  /// Blocks until complete. On nccl this orders the caller's stream after it and
  /// does not block the host.
  virtual void wait() = 0;

  /// How long a device took for it, waiting for the other ranks included; absent until it is
  /// complete, and where the host moves the bytes (its time is that of wait and poll).
  [[nodiscard]] virtual std::optional<double> seconds() { return std::nullopt; }
};

using WorkPtr = std::unique_ptr<Work>;

/// One record of the flight recorder.
struct CommRecord {
  std::uint64_t sequence = 0;  // counts this group's operations from 1
  std::string operation;       // "all_reduce"
  std::string tag;             // the caller's word for it: "grads bucket 3"
  std::uint64_t bytes = 0;     // payload of this rank
  bool complete = false;
};

/// What one rank did in one group with one operation for one purpose. Sends are counted where they
/// are made: absent where a library makes them (nccl, mpi_reduce = library).
struct TrafficRow {
  std::string operation;                     // "all_reduce"
  std::string purpose;                       // the tag without a number at its end: "grads bucket"
  std::uint64_t count = 0;                   // calls
  std::uint64_t payload_bytes = 0;           // CommRecord::bytes of all of them
  std::optional<std::uint64_t> moved_bytes;  // sent to other ranks
  std::optional<std::uint64_t> messages;     // that carried them
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

  /// output[i] = op over ranks of input[i], on every rank.
  [[nodiscard]] virtual WorkPtr all_reduce(const Reduction& request) = 0;

  /// output: part rank() of the input, reduced over ranks.
  [[nodiscard]] virtual WorkPtr reduce_scatter(const Reduction& request) = 0;

  [[nodiscard]] virtual WorkPtr all_gather(const AllGather& request) = 0;
  [[nodiscard]] virtual WorkPtr broadcast(const Broadcast& request) = 0;
  [[nodiscard]] virtual WorkPtr all_to_all(const AllToAll& request) = 0;
  [[nodiscard]] virtual WorkPtr exchange(const Exchange& request) = 0;

  /// Returns when all ranks of the group have called it.
  virtual void barrier(const Barrier& request = {}) = 0;

  /// Collective: ranks of equal color form a group, ordered by (key, rank).
  /// A negative color joins none: null.
  [[nodiscard]] virtual std::unique_ptr<Communicator> split(int color, int key,
                                                            const std::string& name) = 0;

  /// Of this group since it was made, by operation and purpose; difference: comm/traffic.hpp.
  [[nodiscard]] virtual std::vector<TrafficRow> traffic() const = 0;
  /// The last operations of this group, oldest first (a bounded ring).
  [[nodiscard]] virtual std::vector<CommRecord> recent() const = 0;
};

}  // namespace trireme
