#include "comm/p2p/operations.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

#include "comm/reduce.hpp"

namespace trireme {
namespace {

/// Forgets finished transfers; true when none is left.
bool drain(std::vector<TransferPtr>& transfers) {
  std::erase_if(transfers, [](const TransferPtr& transfer) { return transfer->done(); });
  return transfers.empty();
}

class FlatExchange final : public Operation {
 public:
  FlatExchange(Transport& transport, TagPair tags, std::span<const Message> sends,
               std::span<const Message> receives) {
    for (const auto& m : receives) {
      transfers_.push_back(transport.receive(m.peer, tags.first, m.data, m.bytes));
    }
    for (const auto& m : sends) {
      transfers_.push_back(transport.send(m.peer, tags.first, m.data, m.bytes));
    }
  }

  bool advance() override { return drain(transfers_); }

 private:
  std::vector<TransferPtr> transfers_;
};

class SmallAllReduce final : public Operation {
 public:
  SmallAllReduce(Transport& transport, TagPair tags, const Reduction& request)
      : output_(request.output), count_(request.count), dtype_(request.dtype), op_(request.op) {
    const auto n = static_cast<std::size_t>(transport.size());
    const std::uint64_t bytes = request.bytes();
    scratch_.resize(n * bytes);
    inputs_.resize(n);
    for (int peer = 0; peer < transport.size(); ++peer) {
      const auto index = static_cast<std::size_t>(peer);
      std::byte* slot = scratch_.data() + index * bytes;
      inputs_[index] = peer == transport.rank() ? request.input : slot;
      if (peer == transport.rank()) continue;
      transfers_.push_back(transport.receive(peer, tags.first, slot, bytes));
      transfers_.push_back(transport.send(peer, tags.first, request.input, bytes));
    }
  }

  bool advance() override {
    if (!drain(transfers_)) return false;
    reduce_in_order(inputs_, output_, count_, dtype_, op_);
    return true;
  }

 private:
  std::vector<std::byte> scratch_;  // one slot per rank
  std::vector<const void*> inputs_;
  std::vector<TransferPtr> transfers_;
  void* output_;
  std::uint64_t count_;
  DType dtype_;
  ReduceOp op_;
};

class DisseminationBarrier final : public Operation {
 public:
  DisseminationBarrier(Transport& transport, TagPair tags) : transport_(transport), tags_(tags) {}

  bool advance() override {
    while (drain(transfers_)) {
      if (distance_ >= transport_.size()) return true;
      const int n = transport_.size();
      const int to = (transport_.rank() + distance_) % n;
      const int from = (transport_.rank() + n - distance_) % n;
      transfers_.push_back(transport_.receive(from, tags_.first, nullptr, 0));
      transfers_.push_back(transport_.send(to, tags_.first, nullptr, 0));
      distance_ *= 2;
    }
    return false;
  }

 private:
  Transport& transport_;
  TagPair tags_;
  int distance_ = 1;
  std::vector<TransferPtr> transfers_;
};

class TreeBroadcast final : public Operation {
 public:
  TreeBroadcast(Transport& transport, TagPair tags, const Broadcast& request,
                SegmentedOptions options)
      : transport_(transport),
        tag_(tags.first),
        data_(static_cast<std::byte*>(request.data)),
        bytes_(request.bytes()),
        chunk_(options.chunk_bytes),
        window_(static_cast<std::size_t>(options.chunks_in_flight)) {
    const int n = transport.size();
    const int root = request.root;
    const int me = (transport.rank() + n - root) % n;  // relative to the root
    int bit = 1;
    while (bit < n && (me & bit) == 0) bit *= 2;
    if (me != 0) parent_ = (me - bit + root) % n;
    for (int child = bit / 2; child > 0; child /= 2) {
      if (me + child < n) children_.push_back((me + child + root) % n);
    }
    if (me == 0) available_ = bytes_;
  }

  bool advance() override {
    while (true) {
      while (parent_ >= 0 && posted_ < bytes_ && receiving_.size() < window_) {
        const std::uint64_t size = std::min(chunk_, bytes_ - posted_);
        receiving_.push_back(transport_.receive(parent_, tag_, data_ + posted_, size));
        posted_ += size;
      }
      if (receiving_.empty() || !receiving_.front()->done()) break;
      receiving_.pop_front();
      available_ = std::min(available_ + chunk_, bytes_);
    }
    drain(sending_);
    while (sent_ < available_ && sending_.size() < window_ * (children_.size() + 1)) {
      const std::uint64_t size = std::min(chunk_, bytes_ - sent_);
      for (const int child : children_) {
        sending_.push_back(transport_.send(child, tag_, data_ + sent_, size));
      }
      sent_ += size;
    }
    return sent_ == bytes_ && drain(sending_);
  }

 private:
  Transport& transport_;
  int tag_;
  std::byte* data_;
  std::uint64_t bytes_;
  std::uint64_t chunk_;
  std::size_t window_;
  int parent_ = -1;
  std::vector<int> children_;
  std::uint64_t posted_ = 0;     // receives started up to here
  std::uint64_t available_ = 0;  // data present up to here
  std::uint64_t sent_ = 0;       // sends started up to here
  std::deque<TransferPtr> receiving_;
  std::vector<TransferPtr> sending_;
};

}  // namespace

std::unique_ptr<Operation> make_flat_exchange(Transport& transport, TagPair tags,
                                              std::span<const Message> sends,
                                              std::span<const Message> receives) {
  return std::make_unique<FlatExchange>(transport, tags, sends, receives);
}

std::unique_ptr<Operation> make_small_all_reduce(Transport& transport, TagPair tags,
                                                 const Reduction& request) {
  return std::make_unique<SmallAllReduce>(transport, tags, request);
}

std::unique_ptr<Operation> make_barrier(Transport& transport, TagPair tags) {
  return std::make_unique<DisseminationBarrier>(transport, tags);
}

std::unique_ptr<Operation> make_tree_broadcast(Transport& transport, TagPair tags,
                                               const Broadcast& request, SegmentedOptions options) {
  return std::make_unique<TreeBroadcast>(transport, tags, request, options);
}

}  // namespace trireme
