#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <vector>

#include "comm/p2p/operations.hpp"
#include "comm/reduce.hpp"

/// Operations on few bytes. With many ranks, the number of messages determines the time, so one
/// message carries the buffers of several ranks.
namespace trireme::comm {
namespace {

/// Gathers the buffer of every rank on every rank. Before round k, rank r has the buffers of the
/// 2^k ranks r, r + 1, ... It sends them to rank r - 2^k and receives the next 2^k buffers from
/// rank r + 2^k (all modulo n). Source: Bruck et al., IEEE Transactions on Parallel and Distributed
/// Systems 8, 1997.
class RoundGather {
 public:
  RoundGather(const Channel& channel, const void* own, std::uint64_t block_bytes)
      : channel_(channel),
        bytes_(block_bytes),
        blocks_(std::make_unique_for_overwrite<std::byte[]>(
            static_cast<std::uint64_t>(channel.size()) * block_bytes)) {
    std::memcpy(blocks_.get(), own, bytes_);
  }

  bool advance() {
    const int n = channel_.size();
    while (drain(transfers_)) {
      if (distance_ >= n) return true;
      const auto present = static_cast<std::uint64_t>(distance_);
      const std::uint64_t size =
          std::min(present, static_cast<std::uint64_t>(n) - present) * bytes_;
      const int tag = channel_.tags.first;
      const int from = (channel_.rank() + distance_) % n;
      const int to = (channel_.rank() + n - distance_) % n;
      transfers_.push_back(channel_.receive(from, tag, blocks_.get() + present * bytes_, size));
      transfers_.push_back(channel_.send(to, tag, blocks_.get(), size));
      distance_ *= 2;
    }
    return false;
  }

  [[nodiscard]] const std::byte* block_of(int rank) const {
    const int place = (rank + channel_.size() - channel_.rank()) % channel_.size();
    return blocks_.get() + static_cast<std::uint64_t>(place) * bytes_;
  }

 private:
  const Channel channel_;
  const std::uint64_t bytes_;
  // buffers of all ranks in rank order (modulo n), beginning with this rank's buffer
  const std::unique_ptr<std::byte[]> blocks_;
  int distance_ = 1;
  std::vector<TransferPtr> transfers_;
};

class RoundAllGather final : public Operation {
 public:
  RoundAllGather(const Channel& channel, const AllGather& request)
      : gather_(channel, request.input, request.bytes()),
        rank_(static_cast<std::uint64_t>(channel.rank())),
        ranks_(static_cast<std::uint64_t>(channel.size())),
        bytes_(request.bytes()),
        output_(static_cast<std::byte*>(request.output)) {}

  bool advance() override {
    if (!gather_.advance()) return false;
    std::memcpy(output_ + rank_ * bytes_, gather_.block_of(static_cast<int>(rank_)),
                (ranks_ - rank_) * bytes_);
    std::memcpy(output_, gather_.block_of(0), rank_ * bytes_);
    return true;
  }

 private:
  RoundGather gather_;
  const std::uint64_t rank_;
  const std::uint64_t ranks_;
  const std::uint64_t bytes_;
  std::byte* const output_;
};

class RoundAllReduce final : public Operation {
 public:
  RoundAllReduce(const Channel& channel, const Reduction& request)
      : gather_(channel, request.input, request.bytes()),
        ranks_(channel.size()),
        request_(request) {}

  bool advance() override {
    if (!gather_.advance()) return false;
    std::vector<const void*> inputs(static_cast<std::size_t>(ranks_));
    for (int rank = 0; rank < ranks_; ++rank)
      inputs[static_cast<std::size_t>(rank)] = gather_.block_of(rank);
    reduce_in_order(inputs, request_.output, request_.count, request_.dtype, request_.op);
    return true;
  }

 private:
  RoundGather gather_;
  const int ranks_;
  const Reduction request_;  // its tag is not used
};

class TreeAllReduce final : public Operation {
 public:
  TreeAllReduce(const Channel& channel, const Reduction& request, SegmentedOptions options)
      : channel_(channel), request_(request), options_(options) {
    const int n = channel.size();
    const int me = channel.rank();
    const std::uint64_t bytes = request.bytes();
    // The subtree of rank r consists of the ranks r, r + 1, ... Their number is the lowest set bit
    // of r.
    int bit = 1;
    while (bit < n && (me & bit) == 0) bit *= 2;
    subtree_ = static_cast<std::uint64_t>(std::min(bit, n - me));
    if (me != 0) parent_ = me - bit;
    blocks_ = std::make_unique_for_overwrite<std::byte[]>(subtree_ * bytes);
    std::memcpy(blocks_.get(), request.input, bytes);
    for (int distance = 1; distance < bit && me + distance < n; distance *= 2) {
      const auto size = static_cast<std::uint64_t>(std::min(distance, n - me - distance)) * bytes;
      up_.push_back(channel.receive(me + distance, channel.tags.first,
                                    blocks_.get() + static_cast<std::uint64_t>(distance) * bytes,
                                    size));
    }
  }

  bool advance() override {
    if (!drain(up_)) return false;
    if (!down_) {
      parent_ < 0 ? reduce() : send_up();
      const Channel results{
          channel_.transport, channel_.sent, {channel_.tags.second, channel_.tags.second}};
      down_ = make_tree_broadcast(
          results,
          {.data = request_.output, .count = request_.count, .dtype = request_.dtype, .root = 0},
          options_);
    }
    const bool sent = drain(up_);
    return down_->advance() && sent;
  }

 private:
  void send_up() {
    up_.push_back(
        channel_.send(parent_, channel_.tags.first, blocks_.get(), subtree_ * request_.bytes()));
  }

  void reduce() {
    std::vector<const void*> inputs(subtree_);
    for (std::uint64_t rank = 0; rank < subtree_; ++rank)
      inputs[rank] = blocks_.get() + rank * request_.bytes();
    reduce_in_order(inputs, request_.output, request_.count, request_.dtype, request_.op);
  }

  const Channel channel_;
  const Reduction request_;  // its tag is not used
  const SegmentedOptions options_;
  int parent_ = -1;
  std::uint64_t subtree_ = 1;            // number of ranks
  std::unique_ptr<std::byte[]> blocks_;  // buffers of the subtree, in rank order
  std::vector<TransferPtr> up_;  // buffers from children, then this rank's buffers to the parent
  std::unique_ptr<Operation> down_;
};

}  // namespace

std::unique_ptr<Operation> make_round_all_gather(const Channel& channel, const AllGather& request) {
  return std::make_unique<RoundAllGather>(channel, request);
}

std::unique_ptr<Operation> make_round_all_reduce(const Channel& channel, const Reduction& request) {
  return std::make_unique<RoundAllReduce>(channel, request);
}

std::unique_ptr<Operation> make_tree_all_reduce(const Channel& channel, const Reduction& request,
                                                SegmentedOptions options) {
  return std::make_unique<TreeAllReduce>(channel, request, options);
}

}  // namespace trireme::comm
