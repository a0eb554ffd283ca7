#include "comm/base_communicator.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>

#include "comm/liveness/activity.hpp"
#include "core/error.hpp"

namespace trireme {
namespace {

bool known(DType dtype) {
  return static_cast<unsigned>(dtype) <= static_cast<unsigned>(DType::u8);
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
  if (!(options_.timeout_s > 0)) {
    fail(ErrorKind::usage, "communicator {}: timeout_s = {}, must be above 0", name_,
         options_.timeout_s);
  }
}

Call BaseCommunicator::record(const char* operation, const char* tag, std::uint64_t payload,
                              std::uint64_t sent) const {
  Call call;
  call.recorder = recorder_;
  call.timeout_s = options_.timeout_s;
  call.sequence = recorder_->begin(operation, tag, payload, sent);
  call.what = formatted("{}{} of group {} (rank {} of {}), operation {}, {} bytes", operation,
                        *tag != '\0' ? formatted(" '{}'", tag) : "", name_, rank_, size_,
                        call.sequence, payload);
  return call;
}

void BaseCommunicator::refuse(const char* operation, const char* tag,
                              const std::string& why) const {
  fail(ErrorKind::usage, "{} '{}' of group {} ({}): {}", operation, tag, name_, backend(), why);
}

bool BaseCommunicator::supports(DType dtype, ReduceOp op) const {
  return known(dtype) && std::string_view(op_name(op)) != "unknown";
}

void BaseCommunicator::check_reduction(const char* operation, const char* tag, const void* input,
                                       const void* output, std::uint64_t count, DType dtype,
                                       ReduceOp op) const {
  if (!supports(dtype, op)) {
    refuse(operation, tag,
           formatted("{} of {} is not supported by this backend", op_name(op),
                     known(dtype) ? dtype_name(dtype) : "an unknown type"));
  }
  if (count > 0 && (input == nullptr || output == nullptr)) refuse(operation, tag, "null buffer");
}

WorkPtr BaseCommunicator::all_reduce(const void* input, void* output, std::uint64_t count,
                                     DType dtype, ReduceOp op, Stream stream, const char* tag) {
  check_reduction("all_reduce", tag, input, output, count, dtype, op);
  const std::uint64_t bytes = count * size_of(dtype);
  const auto n = static_cast<std::uint64_t>(size_);
  return start_all_reduce(record("all_reduce", tag, bytes, 2 * (n - 1) * bytes / n), input, output,
                          count, dtype, op, stream);
}

WorkPtr BaseCommunicator::reduce_scatter(const void* input, void* output, std::uint64_t count,
                                         DType dtype, ReduceOp op, Stream stream, const char* tag) {
  check_reduction("reduce_scatter", tag, input, output, count, dtype, op);
  const std::uint64_t part = count * size_of(dtype);
  const auto n = static_cast<std::uint64_t>(size_);
  return start_reduce_scatter(record("reduce_scatter", tag, n * part, (n - 1) * part), input,
                              output, count, dtype, op, stream);
}

WorkPtr BaseCommunicator::all_gather(const void* input, void* output, std::uint64_t count,
                                     DType dtype, Stream stream, const char* tag) {
  if (!known(dtype)) refuse("all_gather", tag, "unknown element type");
  if (count > 0 && (input == nullptr || output == nullptr)) {
    refuse("all_gather", tag, "null buffer");
  }
  const std::uint64_t part = count * size_of(dtype);
  const auto n = static_cast<std::uint64_t>(size_);
  return start_all_gather(record("all_gather", tag, part, (n - 1) * part), input, output, part,
                          stream);
}

WorkPtr BaseCommunicator::broadcast(void* data, std::uint64_t count, DType dtype, int root,
                                    Stream stream, const char* tag) {
  if (!known(dtype)) refuse("broadcast", tag, "unknown element type");
  if (root < 0 || root >= size_) {
    refuse("broadcast", tag, formatted("root = {}, must be in [0, {})", root, size_));
  }
  if (count > 0 && data == nullptr) refuse("broadcast", tag, "null buffer");
  const std::uint64_t bytes = count * size_of(dtype);
  const bool last_of_ring = (rank_ + 1) % size_ == root;
  return start_broadcast(record("broadcast", tag, bytes, last_of_ring ? 0 : bytes), data, bytes,
                         root, stream);
}

WorkPtr BaseCommunicator::all_to_all(const void* input, std::span<const std::uint64_t> send_counts,
                                     void* output, std::span<const std::uint64_t> receive_counts,
                                     DType dtype, Stream stream, const char* tag) {
  const auto n = static_cast<std::size_t>(size_);
  if (!known(dtype)) refuse("all_to_all", tag, "unknown element type");
  if (send_counts.size() != n || receive_counts.size() != n) {
    refuse("all_to_all", tag,
           formatted("{} send counts and {} receive counts, must be {} each", send_counts.size(),
                     receive_counts.size(), n));
  }
  const std::uint64_t width = size_of(dtype);
  const std::uint64_t payload = sum(send_counts) * width;
  if (size_ > 1 && input == output && payload > 0) {
    refuse("all_to_all", tag, "input and output are the same buffer; it cannot work in place");
  }
  std::vector<Message> sends;
  std::vector<Message> receives;
  auto* from = static_cast<std::byte*>(const_cast<void*>(input));
  auto* to = static_cast<std::byte*>(output);
  for (std::size_t peer = 0; peer < n; ++peer) {
    const std::uint64_t send_bytes = send_counts[peer] * width;
    const std::uint64_t receive_bytes = receive_counts[peer] * width;
    if (send_bytes > 0) sends.push_back({static_cast<int>(peer), from, send_bytes});
    if (receive_bytes > 0) receives.push_back({static_cast<int>(peer), to, receive_bytes});
    if (send_bytes > 0) from += send_bytes;
    if (receive_bytes > 0) to += receive_bytes;
  }
  const std::uint64_t own = send_counts[static_cast<std::size_t>(rank_)] * width;
  return start_exchange(record("all_to_all", tag, payload, payload - own), std::move(sends),
                        std::move(receives), stream);
}

void BaseCommunicator::check_messages(const char* tag, std::span<const Message> messages) const {
  for (const auto& message : messages) {
    if (message.peer < 0 || message.peer >= size_) {
      refuse("exchange", tag, formatted("peer = {}, must be in [0, {})", message.peer, size_));
    }
    if (message.bytes > 0 && message.data == nullptr) refuse("exchange", tag, "null buffer");
  }
}

std::uint64_t BaseCommunicator::bytes_for_others(std::span<const Message> sends) const {
  std::uint64_t bytes = 0;
  for (const auto& message : sends) bytes += message.peer == rank_ ? 0 : message.bytes;
  return bytes;
}

WorkPtr BaseCommunicator::exchange(std::span<const Message> sends,
                                   std::span<const Message> receives, Stream stream,
                                   const char* tag) {
  check_messages(tag, sends);
  check_messages(tag, receives);
  std::uint64_t payload = 0;
  for (const auto& message : sends) payload += message.bytes;
  return start_exchange(record("exchange", tag, payload, bytes_for_others(sends)),
                        {sends.begin(), sends.end()}, {receives.begin(), receives.end()}, stream);
}

void BaseCommunicator::barrier() {
  start_barrier(record("barrier", "", 0, 0))->wait();
}

std::vector<OwnMessage> take_own_messages(const Call& call, int rank, std::vector<Message>& sends,
                                          std::vector<Message>& receives) {
  const auto take_own = [rank](std::vector<Message>& all) {
    std::vector<Message> own;
    std::copy_if(all.begin(), all.end(), std::back_inserter(own),
                 [rank](const Message& m) { return m.peer == rank; });
    all.erase(
        std::remove_if(all.begin(), all.end(), [rank](const Message& m) { return m.peer == rank; }),
        all.end());
    return own;
  };
  const auto from = take_own(sends);
  const auto to = take_own(receives);
  if (from.size() != to.size()) {
    fail(ErrorKind::usage, "{}: {} messages to itself, {} receives from itself", call.what,
         from.size(), to.size());
  }
  std::vector<OwnMessage> own;
  for (std::size_t i = 0; i < from.size(); ++i) {
    if (from[i].bytes != to[i].bytes) {
      fail(ErrorKind::usage, "{}: message {} to itself has {} bytes, its receive {}", call.what, i,
           from[i].bytes, to[i].bytes);
    }
    if (from[i].bytes > 0 && from[i].data != to[i].data) {
      own.push_back({to[i].data, from[i].data, from[i].bytes});
    }
  }
  return own;
}

void copy_own_messages(const Call& call, int rank, std::vector<Message>& sends,
                       std::vector<Message>& receives) {
  for (const auto& own : take_own_messages(call, rank, sends, receives)) {
    std::memmove(own.to, own.from, own.bytes);
  }
}

}  // namespace trireme
