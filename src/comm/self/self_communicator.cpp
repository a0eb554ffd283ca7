#include "comm/self/self_communicator.hpp"

#include <cstring>

namespace trireme::comm {
namespace {

WorkPtr copy(const Call& call, const void* input, void* output, std::uint64_t bytes) {
  if (bytes > 0 && input != output) std::memcpy(output, input, bytes);
  call.complete();
  return std::make_unique<DoneWork>();
}

}  // namespace

SelfCommunicator::SelfCommunicator(std::string name, CommOptions options)
    : BaseCommunicator(std::move(name), 0, 1, std::move(options)) {}

WorkPtr SelfCommunicator::start_all_reduce(Call call, const Reduction& request) {
  return copy(call, request.input, request.output, request.bytes());
}

WorkPtr SelfCommunicator::start_reduce_scatter(Call call, const Reduction& request) {
  return copy(call, request.input, request.output, request.bytes());
}

WorkPtr SelfCommunicator::start_all_gather(Call call, const AllGather& request) {
  return copy(call, request.input, request.output, request.bytes());
}

WorkPtr SelfCommunicator::start_broadcast(Call call, const Broadcast&) {
  call.complete();
  return std::make_unique<DoneWork>();
}

WorkPtr SelfCommunicator::start_exchange(Call call, const Exchange& request) {
  copy_own(sort_messages(call, 0, request).own);
  call.complete();
  return std::make_unique<DoneWork>();
}

WorkPtr SelfCommunicator::start_barrier(Call call) {
  call.complete();
  return std::make_unique<DoneWork>();
}

std::unique_ptr<Communicator> SelfCommunicator::split(int color, int, const std::string& name) {
  if (color < 0) return nullptr;
  return std::make_unique<SelfCommunicator>(name, options());
}

}  // namespace trireme::comm
