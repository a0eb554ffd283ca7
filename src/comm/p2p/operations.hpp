#pragma once
#include <memory>
#include <span>

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
/// Messages go directly between owner and peer (pairwise), 2 (n-1)/n of the
/// buffer per rank as in a ring.
namespace trireme {

/// Two tags per operation: reductions and results must not be matched with one another.
struct TagPair {
  int first = 0;
  int second = 0;
};

/// Messages that are all started at once; complete when all are done.
std::unique_ptr<Operation> make_flat_exchange(Transport& transport, TagPair tags,
                                              std::span<const Message> sends,
                                              std::span<const Message> receives);

/// Every rank sends its whole buffer to every other and reduces by itself: one latency, for small
/// buffers.
std::unique_ptr<Operation> make_small_all_reduce(Transport& transport, TagPair tags,
                                                 const Reduction& request);

struct SegmentedOptions {
  std::uint64_t chunk_bytes = 0;
  int chunks_in_flight = 0;
};

/// all_reduce: each rank owns a part, reduces it chunk by chunk and sends the results back while
/// later chunks arrive.
std::unique_ptr<Operation> make_segmented_all_reduce(Transport& transport, TagPair tags,
                                                     const Reduction& request,
                                                     SegmentedOptions options);

/// reduce_scatter: the same without sending results.
std::unique_ptr<Operation> make_segmented_reduce_scatter(Transport& transport, TagPair tags,
                                                         const Reduction& request,
                                                         SegmentedOptions options);

/// Binomial tree from the root; chunks are passed on as they arrive.
std::unique_ptr<Operation> make_tree_broadcast(Transport& transport, TagPair tags,
                                               const Broadcast& request, SegmentedOptions options);

/// Dissemination: ceil(log2 n) rounds of empty messages.
std::unique_ptr<Operation> make_barrier(Transport& transport, TagPair tags);

}  // namespace trireme
