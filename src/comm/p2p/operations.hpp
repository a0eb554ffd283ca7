#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/p2p/engine.hpp"

/// The collectives as state machines over a Transport. None blocks;
/// none depends on timing for its result.
///
/// Reductions add in rank order 0, 1, 2, ... for every element, whatever the size, the pieces or
/// the algorithm, so
/// - all ranks hold the same bits, and a repeated call gives the same bits;
/// - reduce_scatter equals the matching part of all_reduce bit for bit;
/// - cutting a buffer into buckets changes nothing.
/// Large buffers go directly between owner and peer (pairwise), 2 (n-1)/n of the buffer per rank as
/// in a ring; small ones in few messages. Which form when, and its bytes: volume.hpp.
namespace trireme {

/// Two tags per operation: reductions and results must not be matched with one another.
struct TagPair {
  int first = 0;
  int second = 0;
};

/// An operation's way to its peers; all of it outlives the operation.
struct Channel {
  Transport& transport;
  SentCount& sent;  // every message is counted here
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

/// Forgets finished transfers; true when none is left.
bool drain(std::vector<TransferPtr>& transfers);

/// Messages that are all started at once; complete when all are done.
std::unique_ptr<Operation> make_flat_exchange(const Channel& channel,
                                              std::span<const Message> sends,
                                              std::span<const Message> receives);

/// ceil(log2 n) messages a rank, with the bytes of a flat exchange.
std::unique_ptr<Operation> make_round_all_gather(const Channel& channel, const AllGather& request);

/// The same gather of all buffers, then every rank reduces by itself.
std::unique_ptr<Operation> make_round_all_reduce(const Channel& channel, const Reduction& request);

struct SegmentedOptions {
  std::uint64_t chunk_bytes = 0;
  int chunks_in_flight = 0;
};

/// Buffers go up a binomial tree side by side in rank order, rank 0 reduces, the result comes down:
/// at most ceil(log2 n) + 1 messages a rank. For few bytes on many ranks.
std::unique_ptr<Operation> make_tree_all_reduce(const Channel& channel, const Reduction& request,
                                                SegmentedOptions options);

/// all_reduce: each rank owns a part, reduces it chunk by chunk and sends the results back while
/// later chunks arrive.
std::unique_ptr<Operation> make_segmented_all_reduce(const Channel& channel,
                                                     const Reduction& request,
                                                     SegmentedOptions options);

/// reduce_scatter: the same without sending results.
std::unique_ptr<Operation> make_segmented_reduce_scatter(const Channel& channel,
                                                         const Reduction& request,
                                                         SegmentedOptions options);

/// Binomial tree from the root; chunks are passed on as they arrive.
std::unique_ptr<Operation> make_tree_broadcast(const Channel& channel, const Broadcast& request,
                                               SegmentedOptions options);

/// Dissemination: ceil(log2 n) rounds of empty messages.
std::unique_ptr<Operation> make_barrier(const Channel& channel);

}  // namespace trireme
