#include "comm/p2p/operations.hpp"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <vector>

namespace trireme::comm {
namespace {

class FlatExchange final : public Operation {
 public:
  FlatExchange(const Channel& channel, std::span<const Message> sends,
               std::span<const Message> receives) {
    const int tag = channel.tags.first;
    for (const auto& m : receives)
      transfers_.push_back(channel.receive(m.peer, tag, m.data, m.bytes));
    for (const auto& m : sends) transfers_.push_back(channel.send(m.peer, tag, m.data, m.bytes));
  }

  bool advance() override { return drain(transfers_); }

 private:
  std::vector<TransferPtr> transfers_;
};

class DisseminationBarrier final : public Operation {
 public:
  explicit DisseminationBarrier(const Channel& channel) : channel_(channel) {}

  bool advance() override {
    while (drain(transfers_)) {
      const int n = channel_.size();
      if (distance_ >= n) return true;
      const int to = (channel_.rank() + distance_) % n;
      const int from = (channel_.rank() + n - distance_) % n;
      transfers_.push_back(channel_.receive(from, channel_.tags.first, nullptr, 0));
      transfers_.push_back(channel_.send(to, channel_.tags.first, nullptr, 0));
      distance_ *= 2;
    }
    return false;
  }

 private:
  const Channel channel_;
  int distance_ = 1;
  std::vector<TransferPtr> transfers_;
};

class TreeBroadcast final : public Operation {
 public:
  TreeBroadcast(const Channel& channel, const Broadcast& request, SegmentedOptions options)
      : channel_(channel),
        tag_(channel.tags.first),
        data_(static_cast<std::byte*>(request.data)),
        bytes_(request.bytes()),
        chunk_(options.chunk_bytes),
        window_(static_cast<std::size_t>(options.chunks_in_flight)) {
    const int n = channel.size();
    const int root = request.root;
    const int me = (channel.rank() + n - root) % n;  // relative to the root
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
        receiving_.push_back(channel_.receive(parent_, tag_, data_ + posted_, size));
        posted_ += size;
      }
      if (receiving_.empty() || !receiving_.front()->done()) break;
      receiving_.pop_front();
      available_ = std::min(available_ + chunk_, bytes_);
    }
    drain(sending_);
    while (sent_ < available_ && sending_.size() < window_ * (children_.size() + 1)) {
      const std::uint64_t size = std::min(chunk_, bytes_ - sent_);
      for (const int child : children_)
        sending_.push_back(channel_.send(child, tag_, data_ + sent_, size));
      sent_ += size;
    }
    return sent_ == bytes_ && drain(sending_);
  }

 private:
  const Channel channel_;
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

bool drain(std::vector<TransferPtr>& transfers) {
  std::erase_if(transfers, [](const TransferPtr& transfer) { return transfer->done(); });
  return transfers.empty();
}

std::unique_ptr<Operation> make_flat_exchange(const Channel& channel,
                                              std::span<const Message> sends,
                                              std::span<const Message> receives) {
  return std::make_unique<FlatExchange>(channel, sends, receives);
}

std::unique_ptr<Operation> make_barrier(const Channel& channel) {
  return std::make_unique<DisseminationBarrier>(channel);
}

std::unique_ptr<Operation> make_tree_broadcast(const Channel& channel, const Broadcast& request,
                                               SegmentedOptions options) {
  return std::make_unique<TreeBroadcast>(channel, request, options);
}

}  // namespace trireme::comm
