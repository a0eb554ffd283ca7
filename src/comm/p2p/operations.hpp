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
///
/// For large buffers, each rank exchanges chunks directly with the rank that reduces them
/// (pairwise); each rank sends 2 (n-1)/n of the buffer, as in a ring. Small buffers use as few
/// messages as possible. volume.hpp chooses the algorithm and computes its bytes.
namespace trireme::comm {

/// An operation uses two tags, so that a receive for a result never matches a message with a
/// contribution.
struct TagPair {
  int first = 0;
  int second = 0;
};

/// The connection of an operation to its peers. All referenced objects must outlive the operation.
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

/// Starts all messages at once. Complete when all messages are done.
std::unique_ptr<Operation> make_flat_exchange(const Channel& channel,
                                              std::span<const Message> sends,
                                              std::span<const Message> receives);

/// Gathers with ceil(log2 n) messages per rank. A rank sends as many bytes as in a flat exchange.
std::unique_ptr<Operation> make_round_all_gather(const Channel& channel, const AllGather& request);

/// Gathers the buffers of all ranks like make_round_all_gather(). Then every rank reduces all
/// buffers itself.
std::unique_ptr<Operation> make_round_all_reduce(const Channel& channel, const Reduction& request);

/// Returns the parts of an all_reduce: rank p reduces elements [bounds[p], bounds[p + 1]).
std::vector<std::uint64_t> all_reduce_bounds(int ranks, const Reduction& request);

/// Returns the parts of a reduce_scatter; the part of rank p is its result.
std::vector<std::uint64_t> reduce_scatter_bounds(int ranks, const Reduction& request);

struct SegmentedOptions {
  std::uint64_t chunk_bytes = 0;
  int chunks_in_flight = 0;
};

/// Collects all buffers at the root of a binomial tree, rank 0, which reduces them in rank order.
/// The result goes down the tree. Each rank sends at most ceil(log2 n) + 1 messages. For few bytes
/// on many ranks.
std::unique_ptr<Operation> make_tree_all_reduce(const Channel& channel, const Reduction& request,
                                                SegmentedOptions options);

/// all_reduce: each rank reduces its part chunk by chunk and sends the results while later chunks
/// arrive.
std::unique_ptr<Operation> make_segmented_all_reduce(const Channel& channel,
                                                     const Reduction& request,
                                                     SegmentedOptions options);

/// reduce_scatter: like make_segmented_all_reduce(), but without sending results.
std::unique_ptr<Operation> make_segmented_reduce_scatter(const Channel& channel,
                                                         const Reduction& request,
                                                         SegmentedOptions options);

/// Binomial tree from the root; chunks are forwarded as they arrive.
std::unique_ptr<Operation> make_tree_broadcast(const Channel& channel, const Broadcast& request,
                                               SegmentedOptions options);

/// Dissemination barrier: ceil(log2 n) rounds of empty messages.
std::unique_ptr<Operation> make_barrier(const Channel& channel);

}  // namespace trireme::comm
