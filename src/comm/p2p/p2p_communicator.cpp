#include "comm/p2p/p2p_communicator.hpp"

#include <cstring>

#include "comm/p2p/volume.hpp"

namespace trireme::comm {

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

Channel P2PCommunicator::channel(const Call& call) {
  return {*transport_, *call.sent, next_tags()};
}

WorkPtr P2PCommunicator::start_all_reduce(Call call, const Reduction& request) {
  if (request.count == 0) return launch(std::move(call), nullptr);
  const Channel peers = channel(call);
  switch (all_reduce_form(size(), request.bytes())) {
    case AllReduceForm::rounds:
      return launch(std::move(call), make_round_all_reduce(peers, request));
    case AllReduceForm::tree:
      return launch(std::move(call), make_tree_all_reduce(peers, request, segmented()));
    case AllReduceForm::segmented:
      break;
  }
  return launch(std::move(call), make_segmented_all_reduce(peers, request, segmented()));
}

WorkPtr P2PCommunicator::start_reduce_scatter(Call call, const Reduction& request) {
  if (request.count == 0) return launch(std::move(call), nullptr);
  const Channel peers = channel(call);
  return launch(std::move(call), make_segmented_reduce_scatter(peers, request, segmented()));
}

WorkPtr P2PCommunicator::start_all_gather(Call call, const AllGather& request) {
  const std::uint64_t bytes = request.bytes();
  if (bytes == 0) return launch(std::move(call), nullptr);
  const Channel peers = channel(call);
  if (gathers_in_rounds(size(), bytes))
    return launch(std::move(call), make_round_all_gather(peers, request));
  std::vector<Message> sends;
  std::vector<Message> receives;
  auto* parts = static_cast<std::byte*>(request.output);
  std::byte* const own = parts + static_cast<std::uint64_t>(rank()) * bytes;
  if (own != request.input) std::memcpy(own, request.input, bytes);
  // Start with the next rank, so that not all ranks send to rank 0 first.
  for (int step = 1; step < size(); ++step) {
    const int to = (rank() + step) % size();
    const int from = (rank() + size() - step) % size();
    sends.push_back({to, own, bytes});
    receives.push_back({from, parts + static_cast<std::uint64_t>(from) * bytes, bytes});
  }
  return launch(std::move(call), make_flat_exchange(peers, sends, receives));
}

WorkPtr P2PCommunicator::start_broadcast(Call call, const Broadcast& request) {
  if (request.count == 0) return launch(std::move(call), nullptr);
  const Channel peers = channel(call);
  return launch(std::move(call), make_tree_broadcast(peers, request, segmented()));
}

WorkPtr P2PCommunicator::start_exchange(Call call, const Exchange& request) {
  const SortedMessages sorted = sort_messages(call, rank(), request);
  copy_own(sorted.own);
  // Exchanges have their own tag. Messages between two ranks match in the order in which both ranks
  // list them. Exchanges of other ranks do not matter.
  const int tag = transport_->max_tag();
  const Channel peers{*transport_, *call.sent, {tag, tag}};
  return launch(std::move(call), make_flat_exchange(peers, sorted.sends, sorted.receives));
}

WorkPtr P2PCommunicator::start_barrier(Call call) {
  const Channel peers = channel(call);
  return launch(std::move(call), make_barrier(peers));
}

}  // namespace trireme::comm
