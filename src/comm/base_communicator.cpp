#include "comm/base_communicator.hpp"

#include <cstring>
#include <numeric>

#include "comm/liveness/activity.hpp"
#include "core/error.hpp"
#include "core/named_range.hpp"

namespace trireme::comm {
namespace {

bool known(DType dtype) {
  return static_cast<unsigned>(dtype) <= static_cast<unsigned>(DType::u8);
}

/// Starts an operation in a range of its name.
template <class Start>
WorkPtr launched(Call call, Start&& start) {
  const NamedRange range(Phase::none, [&] { return call.title(); });
  return start(std::move(call));
}

std::uint64_t sum(std::span<const std::uint64_t> values) {
  return std::accumulate(values.begin(), values.end(), std::uint64_t{0});
}

}  // namespace

const char* op_name(ReduceOp op) noexcept {
  switch (op) {
    case ReduceOp::sum:
      return "sum";
    case ReduceOp::max:
      return "max";
    case ReduceOp::min:
      return "min";
  }
  return "unknown";
}

void Call::timed_out() const {
  if (recorder->activity()) recorder->activity()->time_out();
  fail(ErrorKind::comm,
       "{}: not complete after {} s; a rank of the group is lost, stopped or did not call it", what,
       timeout_s);
}

BaseCommunicator::BaseCommunicator(std::string name, int rank, int size, CommOptions options)
    : name_(std::move(name)),
      rank_(rank),
      size_(size),
      options_(std::move(options)),
      recorder_(std::make_shared<Recorder>(name_, options_.recorder_length, options_.activity)) {
  if (!(options_.timeout_s > 0))
    fail(ErrorKind::usage, "communicator {}: timeout_s = {}, must be above 0", name_,
         options_.timeout_s);
}

Call BaseCommunicator::record(const char* operation, std::string_view tag,
                              std::uint64_t payload) const {
  const Recorder::Begun begun = recorder_->begin(operation, tag, payload, counts_sends(operation));
  Call call;
  call.recorder = recorder_;
  call.timeout_s = options_.timeout_s;
  call.sequence = begun.sequence;
  call.sent = begun.sent;
  call.what = formatted("{}{} of group {} (rank {} of {}), operation {}, {} bytes", operation,
                        tag.empty() ? "" : formatted(" '{}'", tag), name_, rank_, size_,
                        call.sequence, payload);
  return call;
}

void BaseCommunicator::refuse(const char* operation, std::string_view tag,
                              const std::string& why) const {
  fail(ErrorKind::usage, "{} '{}' of group {} ({}): {}", operation, tag, name_, backend(), why);
}

bool BaseCommunicator::supports(DType dtype, ReduceOp op) const {
  return known(dtype) && std::string_view(op_name(op)) != "unknown";
}

void BaseCommunicator::check_reduction(const char* operation, const Reduction& request) const {
  if (!supports(request.dtype, request.op))
    refuse(operation, request.tag,
           formatted("{} of {} is not supported by this backend", op_name(request.op),
                     known(request.dtype) ? dtype_name(request.dtype) : "an unknown type"));
  if (request.count > 0 && (request.input == nullptr || request.output == nullptr))
    refuse(operation, request.tag, "null buffer");
}

WorkPtr BaseCommunicator::all_reduce(const Reduction& request) {
  check_reduction("all_reduce", request);
  return launched(record("all_reduce", request.tag, request.bytes()),
                  [&](Call call) { return start_all_reduce(std::move(call), request); });
}

WorkPtr BaseCommunicator::reduce_scatter(const Reduction& request) {
  check_reduction("reduce_scatter", request);
  const std::uint64_t payload = static_cast<std::uint64_t>(size_) * request.bytes();
  return launched(record("reduce_scatter", request.tag, payload),
                  [&](Call call) { return start_reduce_scatter(std::move(call), request); });
}

WorkPtr BaseCommunicator::all_gather(const AllGather& request) {
  if (!known(request.dtype)) refuse("all_gather", request.tag, "unknown element type");
  if (request.count > 0 && (request.input == nullptr || request.output == nullptr))
    refuse("all_gather", request.tag, "null buffer");
  return launched(record("all_gather", request.tag, request.bytes()),
                  [&](Call call) { return start_all_gather(std::move(call), request); });
}

WorkPtr BaseCommunicator::broadcast(const Broadcast& request) {
  if (!known(request.dtype)) refuse("broadcast", request.tag, "unknown element type");
  if (request.root < 0 || request.root >= size_)
    refuse("broadcast", request.tag,
           formatted("root = {}, must be in [0, {})", request.root, size_));
  if (request.count > 0 && request.data == nullptr) refuse("broadcast", request.tag, "null buffer");
  return launched(record("broadcast", request.tag, request.bytes()),
                  [&](Call call) { return start_broadcast(std::move(call), request); });
}

WorkPtr BaseCommunicator::all_to_all(const AllToAll& request) {
  const auto n = static_cast<std::size_t>(size_);
  if (!known(request.dtype)) refuse("all_to_all", request.tag, "unknown element type");
  if (request.send_counts.size() != n || request.receive_counts.size() != n)
    refuse("all_to_all", request.tag,
           formatted("{} send counts and {} receive counts, must be {} each",
                     request.send_counts.size(), request.receive_counts.size(), n));
  const std::uint64_t width = size_of(request.dtype);
  const std::uint64_t payload = sum(request.send_counts) * width;
  if (size_ > 1 && request.input == request.output && payload > 0) {
    refuse("all_to_all", request.tag,
           "input and output are the same buffer; it cannot work in place");
  }
  std::vector<Message> sends;
  std::vector<Message> receives;
  auto* from = static_cast<std::byte*>(const_cast<void*>(request.input));
  auto* to = static_cast<std::byte*>(request.output);
  for (std::size_t peer = 0; peer < n; ++peer) {
    const std::uint64_t send_bytes = request.send_counts[peer] * width;
    const std::uint64_t receive_bytes = request.receive_counts[peer] * width;
    if (send_bytes > 0) sends.push_back({static_cast<int>(peer), from, send_bytes});
    if (receive_bytes > 0) receives.push_back({static_cast<int>(peer), to, receive_bytes});
    if (send_bytes > 0) from += send_bytes;
    if (receive_bytes > 0) to += receive_bytes;
  }
  const Exchange messages{.sends = sends, .receives = receives, .stream = request.stream};
  return launched(record("all_to_all", request.tag, payload),
                  [&](Call call) { return start_exchange(std::move(call), messages); });
}

void BaseCommunicator::check_messages(std::string_view tag,
                                      std::span<const Message> messages) const {
  for (const auto& message : messages) {
    if (message.peer < 0 || message.peer >= size_)
      refuse("exchange", tag, formatted("peer = {}, must be in [0, {})", message.peer, size_));
    if (message.bytes > 0 && message.data == nullptr) refuse("exchange", tag, "null buffer");
  }
}

WorkPtr BaseCommunicator::exchange(const Exchange& request) {
  check_messages(request.tag, request.sends);
  check_messages(request.tag, request.receives);
  std::uint64_t payload = 0;
  for (const auto& message : request.sends) payload += message.bytes;
  return launched(record("exchange", request.tag, payload),
                  [&](Call call) { return start_exchange(std::move(call), request); });
}

void BaseCommunicator::barrier(const Barrier& request) {
  start_barrier(record("barrier", request.tag, 0))->wait();
}

SortedMessages sort_messages(const Call& call, int rank, const Exchange& request) {
  SortedMessages sorted;
  std::vector<Message> from;
  std::vector<Message> to;
  for (const Message& m : request.sends) (m.peer == rank ? from : sorted.sends).push_back(m);
  for (const Message& m : request.receives) (m.peer == rank ? to : sorted.receives).push_back(m);
  if (from.size() != to.size())
    fail(ErrorKind::usage, "{}: {} messages to itself, {} receives from itself", call.what,
         from.size(), to.size());
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i].bytes != to[i].bytes)
      fail(ErrorKind::usage, "{}: message {} to itself has {} bytes, its receive {}", call.what, i,
           from[i].bytes, to[i].bytes);
    if (from[i].bytes > 0 && from[i].data != to[i].data)
      sorted.own.push_back({to[i].data, from[i].data, from[i].bytes});
  }
  return sorted;
}

void copy_own(const std::vector<OwnMessage>& messages) {
  for (const OwnMessage& own : messages) std::memmove(own.to, own.from, own.bytes);
}

}  // namespace trireme::comm
