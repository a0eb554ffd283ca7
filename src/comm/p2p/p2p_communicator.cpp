#include "comm/p2p/p2p_communicator.hpp"

#include <cstring>

namespace trireme {
namespace {

// Below this many bytes in all of a rank's messages, one latency matters more than sending the
// buffer to everyone.
constexpr std::uint64_t kSmallBytes = 64 << 10;

}  // namespace

P2PCommunicator::P2PCommunicator(std::string name, std::shared_ptr<Transport> transport,
                                 std::shared_ptr<Engine> engine, CommOptions options)
    : BaseCommunicator(std::move(name), transport->rank(), transport->size(), std::move(options)),
      transport_(std::move(transport)),
      engine_(std::move(engine)) {}

TagPair P2PCommunicator::next_tags() {
  const auto pairs = static_cast<std::uint64_t>(transport_->max_tag()) / 2;
  const int first = static_cast<int>(collectives_++ % pairs) * 2;
  return {first, first + 1};
}

SegmentedOptions P2PCommunicator::segmented() const {
  return {options().chunk_bytes, options().chunks_in_flight};
}

WorkPtr P2PCommunicator::launch(Call call, std::unique_ptr<Operation> operation) {
  return Engine::start(engine_, transport_, std::move(call), std::move(operation));
}

WorkPtr P2PCommunicator::start_all_reduce(Call call, const Reduction& request) {
  if (request.count == 0) return launch(std::move(call), nullptr);
  const TagPair pair = next_tags();
  const bool small = request.bytes() * static_cast<std::uint64_t>(size()) <= kSmallBytes;
  auto operation = small ? make_small_all_reduce(*transport_, pair, request)
                         : make_segmented_all_reduce(*transport_, pair, request, segmented());
  return launch(std::move(call), std::move(operation));
}

WorkPtr P2PCommunicator::start_reduce_scatter(Call call, const Reduction& request) {
  if (request.count == 0) return launch(std::move(call), nullptr);
  return launch(std::move(call),
                make_segmented_reduce_scatter(*transport_, next_tags(), request, segmented()));
}

WorkPtr P2PCommunicator::start_all_gather(Call call, const AllGather& request) {
  const std::uint64_t bytes = request.bytes();
  if (bytes == 0) return launch(std::move(call), nullptr);
  std::vector<Message> sends;
  std::vector<Message> receives;
  auto* parts = static_cast<std::byte*>(request.output);
  std::byte* const own = parts + static_cast<std::uint64_t>(rank()) * bytes;
  if (own != request.input) std::memcpy(own, request.input, bytes);
  // Start with the next rank, so that not everyone sends to rank 0 first.
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size();
    const int from = (rank() + size() - step) % size();
    sends.push_back({to, own, bytes});
    receives.push_back({from, parts + static_cast<std::uint64_t>(from) * bytes, bytes});
  }
  return launch(std::move(call), make_flat_exchange(*transport_, next_tags(), sends, receives));
}

WorkPtr P2PCommunicator::start_broadcast(Call call, const Broadcast& request) {
  if (request.count == 0) return launch(std::move(call), nullptr);
  return launch(std::move(call),
                make_tree_broadcast(*transport_, next_tags(), request, segmented()));
}

WorkPtr P2PCommunicator::start_exchange(Call call, const Exchange& request) {
  const SortedMessages sorted = sort_messages(call, rank(), request);
  copy_own(sorted.own);
  // One tag of their own: messages of two ranks match in the order both list
  // them, whoever else exchanges.
  const int tag = transport_->max_tag();
  return launch(std::move(call),
                make_flat_exchange(*transport_, {tag, tag}, sorted.sends, sorted.receives));
}

WorkPtr P2PCommunicator::start_barrier(Call call) {
  return launch(std::move(call), make_barrier(*transport_, next_tags()));
}

}  // namespace trireme
