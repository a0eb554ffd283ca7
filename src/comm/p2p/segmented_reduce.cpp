#include <algorithm>
#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "comm/p2p/operations.hpp"
#include "comm/reduce.hpp"

namespace trireme::comm {
namespace {

/// Rank p owns part p. It receives part p from all peers chunk by chunk and reduces in rank order.
/// For all_reduce, it then sends the result to all peers. At most `window` chunks per peer and
/// direction are in flight.
class SegmentedReduce final : public Operation {
 public:
  /// Part p is elements [bounds[p], bounds[p + 1]) of the input. With `gather` the output has all
  /// parts (all_reduce), otherwise only this rank's part.
  SegmentedReduce(const Channel& channel, const Reduction& request,
                  std::vector<std::uint64_t> bounds, bool gather, SegmentedOptions options)
      : channel_(channel),
        input_(static_cast<const std::byte*>(request.input)),
        output_(static_cast<std::byte*>(request.output)),
        dtype_(request.dtype),
        op_(request.op),
        bounds_(std::move(bounds)),
        gather_(gather),
        width_(size_of(dtype_)),
        chunk_(std::max<std::uint64_t>(options.chunk_bytes / width_, 1)),
        window_(static_cast<std::size_t>(std::max(options.chunks_in_flight, 1))),
        rank_(static_cast<std::size_t>(channel.rank())),
        lanes_(static_cast<std::size_t>(channel.size())) {
    // Allocate memory only for the chunks in flight, and not more than the part of this rank needs.
    const std::uint64_t own = part_size(rank_);
    slots_.resize(std::min<std::uint64_t>(window_, (own + chunk_ - 1) / chunk_));
    const std::uint64_t elements = std::min(own, slots_.size() * chunk_);
    scratch_ = std::make_unique_for_overwrite<std::byte[]>(elements * width_ * (lanes_.size() - 1));
    std::byte* next = scratch_.get();
    for (std::size_t w = 0; w < slots_.size(); ++w) {
      for (std::size_t p = 0; p < lanes_.size(); ++p) {
        slots_[w].inputs.push_back(p == rank_ ? nullptr : next);
        if (p != rank_) next += std::min(chunk_, own - w * chunk_) * width_;
      }
    }
  }

  bool advance() override {
    post_receives();
    bool done = true;
    for (std::size_t peer = 0; peer < lanes_.size(); ++peer) {
      if (peer != rank_) done = advance_lane(peer) && done;
    }
    while (reduce_next()) {
    }
    std::erase_if(results_, [](const TransferPtr& t) { return t->done(); });
    return done && reduced_ == part_size(rank_) && results_.empty();
  }

 private:
  /// The transfers with one peer, except the contributions that the peer sends to this rank's part.
  struct Lane {
    std::uint64_t sent = 0;      // elements of the peer's part with started sends
    std::uint64_t expected = 0;  // elements of the peer's part with requested results
    std::deque<TransferPtr> sends;
    std::deque<TransferPtr> results;
  };

  struct Slot {
    std::vector<std::byte*> inputs;  // one buffer per rank; null for this rank
    std::vector<TransferPtr> receives;
  };

  [[nodiscard]] std::uint64_t part_size(std::size_t part) const {
    return bounds_[part + 1] - bounds_[part];
  }

  [[nodiscard]] std::uint64_t chunk_size(std::size_t part, std::uint64_t begin) const {
    return std::min(chunk_, part_size(part) - begin);
  }

  void post_receives() {
    while (asked_ < part_size(rank_) && asked_ < reduced_ + slots_.size() * chunk_) {
      Slot& slot = slots_[(asked_ / chunk_) % slots_.size()];
      const std::uint64_t n = chunk_size(rank_, asked_);
      for (std::size_t peer = 0; peer < lanes_.size(); ++peer) {
        if (peer == rank_) continue;
        slot.receives.push_back(channel_.receive(static_cast<int>(peer), channel_.tags.first,
                                                 slot.inputs[peer], n * width_));
      }
      asked_ += n;
    }
  }

  /// Sends this rank's contribution to the part of the peer. For all_reduce, also receives the
  /// result of a chunk, but only after the chunk was sent: in-place, the result overwrites it.
  bool advance_lane(std::size_t peer) {
    Lane& lane = lanes_[peer];
    const int to = static_cast<int>(peer);
    const std::uint64_t size = part_size(peer);
    const std::uint64_t base = bounds_[peer];
    while (!lane.sends.empty() && lane.sends.front()->done()) {
      lane.sends.pop_front();
      if (!gather_) continue;
      const std::uint64_t n = chunk_size(peer, lane.expected);
      lane.results.push_back(channel_.receive(
          to, channel_.tags.second, output_ + (base + lane.expected) * width_, n * width_));
      lane.expected += n;
    }
    while (lane.sent < size && lane.sends.size() < window_) {
      const std::uint64_t n = chunk_size(peer, lane.sent);
      lane.sends.push_back(
          channel_.send(to, channel_.tags.first, input_ + (base + lane.sent) * width_, n * width_));
      lane.sent += n;
    }
    while (!lane.results.empty() && lane.results.front()->done()) lane.results.pop_front();
    return lane.sent == size && lane.sends.empty() && lane.results.empty();
  }

  bool reduce_next() {
    if (reduced_ == asked_) return false;
    Slot& slot = slots_[(reduced_ / chunk_) % slots_.size()];
    std::erase_if(slot.receives, [](const TransferPtr& t) { return t->done(); });
    if (!slot.receives.empty()) return false;
    const std::uint64_t n = chunk_size(rank_, reduced_);
    std::vector<const void*> inputs(slot.inputs.begin(), slot.inputs.end());
    inputs[rank_] = input_ + (bounds_[rank_] + reduced_) * width_;
    std::byte* result = output_ + ((gather_ ? bounds_[rank_] : 0) + reduced_) * width_;
    reduce_in_order(inputs, result, n, dtype_, op_);
    for (std::size_t peer = 0; gather_ && peer < lanes_.size(); ++peer) {
      if (peer == rank_) continue;
      results_.push_back(
          channel_.send(static_cast<int>(peer), channel_.tags.second, result, n * width_));
    }
    reduced_ += n;
    post_receives();
    return true;
  }

  const Channel channel_;
  const std::byte* const input_;
  std::byte* const output_;
  const DType dtype_;
  const ReduceOp op_;
  const std::vector<std::uint64_t> bounds_;
  const bool gather_;
  const std::uint64_t width_;
  const std::uint64_t chunk_;  // number of elements
  const std::size_t window_;
  const std::size_t rank_;
  std::unique_ptr<std::byte[]> scratch_;
  std::vector<Slot> slots_;
  std::vector<Lane> lanes_;
  std::uint64_t asked_ = 0;    // elements of this rank's part with started receives
  std::uint64_t reduced_ = 0;  // elements of this rank's part that are final
  std::vector<TransferPtr> results_;
};

}  // namespace

std::vector<std::uint64_t> all_reduce_bounds(int ranks, const Reduction& request) {
  // Parts start at cache lines of the buffer.
  constexpr std::uint64_t kLine = 64;
  const auto n = static_cast<std::uint64_t>(ranks);
  const std::uint64_t width = size_of(request.dtype);
  const std::uint64_t part = (request.bytes() / n + kLine - 1) / kLine * kLine / width;
  std::vector<std::uint64_t> bounds;
  for (std::uint64_t p = 0; p < n; ++p) bounds.push_back(std::min(p * part, request.count));
  bounds.push_back(request.count);
  return bounds;
}

std::vector<std::uint64_t> reduce_scatter_bounds(int ranks, const Reduction& request) {
  std::vector<std::uint64_t> bounds;
  for (std::uint64_t p = 0; p <= static_cast<std::uint64_t>(ranks); ++p)
    bounds.push_back(p * request.count);
  return bounds;
}

std::unique_ptr<Operation> make_segmented_all_reduce(const Channel& channel,
                                                     const Reduction& request,
                                                     SegmentedOptions options) {
  return std::make_unique<SegmentedReduce>(
      channel, request, all_reduce_bounds(channel.size(), request), /*gather=*/true, options);
}

std::unique_ptr<Operation> make_segmented_reduce_scatter(const Channel& channel,
                                                         const Reduction& request,
                                                         SegmentedOptions options) {
  return std::make_unique<SegmentedReduce>(
      channel, request, reduce_scatter_bounds(channel.size(), request), /*gather=*/false, options);
}

}  // namespace trireme::comm
