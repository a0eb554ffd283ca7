#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/p2p/engine.hpp"

/// Collectives as non-blocking state machines over a Transport. Timing never changes a result.
///
/// Reductions add every element in rank order 0, 1, 2, ..., for every size, chunking and algorithm.
/// Therefore:
/// - all ranks get the same bits, and a repeated call gives the same bits;
/// - reduce_scatter equals the matching part of all_reduce bit for bit;
/// - splitting a buffer into buckets changes nothing.
/// Large buffers go directly between owner and peer (pairwise), 2 (n-1)/n of the buffer per rank as
/// in a ring. Small buffers go in few messages. volume.hpp chooses the algorithm and computes its
/// bytes.
namespace trireme::comm {

/// Two tags per operation, because reductions and results must not match each other.
struct TagPair {
  int first = 0;
  int second = 0;
};

/// Connects an operation to its peers. All members outlive the operation.
struct Channel {
  Transport& transport;
  SentCount& sent;  // counts every message
  TagPair tags;

  [[nodiscard]] int rank() const { return transport.rank(); }

  [[nodiscard]] int size() const { return transport.size(); }

  [[nodiscard]] TransferPtr send(int peer, int tag, const void* data, std::uint64_t bytes) const {
    return transport.send(sent, peer, tag, data, bytes);
  }

  [[nodiscard]] TransferPtr receive(int peer, int tag, void* data, std::uint64_t bytes) const {
    return transport.receive(peer, tag, data, bytes);
  }
};

/// Removes finished transfers; returns true if none is left.
bool drain(std::vector<TransferPtr>& transfers);

/// Messages that all start at once; complete when all are done.
std::unique_ptr<Operation> make_flat_exchange(const Channel& channel,
                                              std::span<const Message> sends,
                                              std::span<const Message> receives);

/// Gathers with ceil(log2 n) messages per rank and the bytes of a flat exchange.
std::unique_ptr<Operation> make_round_all_gather(const Channel& channel, const AllGather& request);

/// Gathers all buffers in the same way; then every rank reduces by itself.
std::unique_ptr<Operation> make_round_all_reduce(const Channel& channel, const Reduction& request);

struct SegmentedOptions {
  std::uint64_t chunk_bytes = 0;
  int chunks_in_flight = 0;
};

/// Moves buffers up a binomial tree in rank order; rank 0 reduces, and the result comes down. Each
/// rank sends at most ceil(log2 n) + 1 messages. For few bytes on many ranks.
std::unique_ptr<Operation> make_tree_all_reduce(const Channel& channel, const Reduction& request,
                                                SegmentedOptions options);

/// all_reduce: each rank reduces its part by chunks and sends results while later chunks arrive.
std::unique_ptr<Operation> make_segmented_all_reduce(const Channel& channel,
                                                     const Reduction& request,
                                                     SegmentedOptions options);

/// reduce_scatter: the same algorithm without sending results.
std::unique_ptr<Operation> make_segmented_reduce_scatter(const Channel& channel,
                                                         const Reduction& request,
                                                         SegmentedOptions options);

/// Binomial tree from the root; chunks are forwarded as they arrive.
std::unique_ptr<Operation> make_tree_broadcast(const Channel& channel, const Broadcast& request,
                                               SegmentedOptions options);

/// Dissemination barrier: ceil(log2 n) rounds of empty messages.
std::unique_ptr<Operation> make_barrier(const Channel& channel);

}  // namespace trireme::comm
