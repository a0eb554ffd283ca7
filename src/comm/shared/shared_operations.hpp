#pragma once
#include <cstdint>
#include <memory>

#include "comm/p2p/engine.hpp"
#include "comm/requests.hpp"
#include "comm/shared/shared_rings.hpp"

/// Collectives of large buffers on one node, through shared memory.
///
/// The results have the bits of p2p: every element is added in rank order. Rank p reduces the same
/// part p as in the segmented forms of p2p, so all_reduce and reduce_scatter also count the same
/// bytes as sent. Each operation moves chunk by chunk and never blocks, like all operations of the
/// Engine. Therefore a rank that waits has the timeouts, errors and heartbeat of messages.
///
/// `sent` counts the bytes that this rank passes to other ranks, once for each reader.
namespace trireme::comm {

std::unique_ptr<Operation> make_shared_all_reduce(std::shared_ptr<SharedRings> rings,
                                                  SentCount& sent, const Reduction& request);

std::unique_ptr<Operation> make_shared_reduce_scatter(std::shared_ptr<SharedRings> rings,
                                                      SentCount& sent, const Reduction& request);

std::unique_ptr<Operation> make_shared_all_gather(std::shared_ptr<SharedRings> rings,
                                                  SentCount& sent, const AllGather& request);

std::unique_ptr<Operation> make_shared_broadcast(std::shared_ptr<SharedRings> rings,
                                                 SentCount& sent, const Broadcast& request);

}  // namespace trireme::comm
