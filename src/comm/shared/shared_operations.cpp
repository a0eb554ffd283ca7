#include "comm/shared/shared_operations.hpp"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

#include "comm/p2p/operations.hpp"
#include "comm/reduce.hpp"
#include "core/timer.hpp"

namespace trireme::comm {
namespace {

// While chunks flow, the next one usually comes within this time. A rank that yields its core to
// another program instead may get the core back after milliseconds.
constexpr double kSpin_s = 50e-6;

/// An operation that uses the rings when its turn comes.
class SharedOperation : public Operation {
 public:
  /// `bytes` is the size of the request, which must be equal on all ranks.
  SharedOperation(std::shared_ptr<SharedRings> rings, SentCount& sent, std::uint64_t bytes)
      : rings_(std::move(rings)), sent_(sent), bytes_(bytes), turn_(rings_->next_turn()) {}

  SharedOperation(const SharedOperation&) = delete;
  SharedOperation& operator=(const SharedOperation&) = delete;

  ~SharedOperation() override {
    if (!complete_) rings_->abandon();
  }

  bool advance() final {
    if (!rings_->is_turn(turn_)) return false;
    Timer idle;
    bool peers_are_active = false;
    while (!moved_all()) {
      if (move()) {
        peers_are_active = true;
        idle.restart();
      } else if (!peers_are_active || !rings_->spins() || idle.seconds() > kSpin_s) {
        return false;
      }
    }
    complete_ = true;
    rings_->complete_turn();
    return true;
  }

 protected:
  /// Moves at most one chunk of each ring; returns false if nothing could move.
  virtual bool move() = 0;
  [[nodiscard]] virtual bool moved_all() const = 0;

  void publish(RingWriter& ring, std::uint64_t bytes) {
    ring.publish(bytes_);
    for (std::size_t reader = 0; reader < ring.num_readers(); ++reader) sent_.add(bytes);
  }

  /// The bytes of a buffer that still have to move.
  struct Span {
    std::uint64_t next = 0;
    std::uint64_t end = 0;

    [[nodiscard]] bool empty() const { return next == end; }
  };

  [[nodiscard]] std::uint64_t next_chunk(const Span& part) const {
    return std::min(part.end - part.next, rings_->chunk_bytes());
  }

  /// Copies the next chunk that `owner` passes to all ranks. Returns false if there is none yet.
  bool take(std::size_t owner, Span& part, std::byte* to) {
    if (part.empty()) return false;
    RingReader& ring = rings_->all_from(static_cast<int>(owner));
    const std::byte* const from = ring.chunk(bytes_);
    if (from == nullptr) return false;
    const std::uint64_t bytes = next_chunk(part);
    std::memcpy(to + part.next, from, bytes);
    ring.release();
    part.next += bytes;
    return true;
  }

  static bool all_empty(const std::vector<Span>& parts) {
    return std::all_of(parts.begin(), parts.end(), [](const Span& one) { return one.empty(); });
  }

  /// Returns the next chunk that `peer` passes to this rank alone, or null if there is none yet.
  [[nodiscard]] const std::byte* contribution_of(std::size_t peer) const {
    return rings_->from(static_cast<int>(peer)).chunk(bytes_);
  }

  const std::shared_ptr<SharedRings> rings_;

 private:
  SentCount& sent_;
  const std::uint64_t bytes_;
  const std::uint64_t turn_;
  bool complete_ = false;
};

/// Rank p owns part p. Each rank passes its contributions to the owners. The owner reduces a chunk
/// when it has the contributions of all ranks. For all_reduce, the owner passes the result to all.
class SharedReduce final : public SharedOperation {
 public:
  /// Part p is elements [bounds[p], bounds[p + 1]) of the input. With `gather` the output has all
  /// parts (all_reduce), otherwise only this rank's part.
  SharedReduce(std::shared_ptr<SharedRings> rings, SentCount& sent, const Reduction& request,
               const std::vector<std::uint64_t>& bounds, bool gather)
      : SharedOperation(std::move(rings), sent, request.bytes()),
        input_(static_cast<const std::byte*>(request.input)),
        output_(static_cast<std::byte*>(request.output)),
        dtype_(request.dtype),
        op_(request.op),
        rank_(static_cast<std::size_t>(rings_->rank())),
        gather_(gather),
        inputs_(static_cast<std::size_t>(rings_->size())) {
    const std::uint64_t width = size_of(dtype_);
    for (std::size_t p = 0; p + 1 < bounds.size(); ++p)
      contributions_.push_back({bounds[p] * width, bounds[p + 1] * width});
    reduced_ = contributions_[rank_];
    contributions_[rank_] = {};
    if (gather_) {
      results_ = contributions_;
    } else {
      output_begin_ = reduced_.next;
    }
  }

 private:
  bool move() override {
    bool moved = false;
    for (std::size_t step = 1; step < inputs_.size(); ++step)
      moved = contribute((rank_ + step) % inputs_.size()) || moved;
    moved = reduce() || moved;
    for (std::size_t step = 1; gather_ && step < inputs_.size(); ++step)
      moved = take_result((rank_ + step) % inputs_.size()) || moved;
    return moved;
  }

  /// The owner has read this rank's contribution to the result, so in place nothing is lost.
  bool take_result(std::size_t owner) { return take(owner, results_[owner], output_); }

  [[nodiscard]] bool moved_all() const override {
    return reduced_.empty() && all_empty(contributions_) && all_empty(results_);
  }

  bool contribute(std::size_t peer) {
    Span& part = contributions_[peer];
    if (part.empty()) return false;
    RingWriter& ring = rings_->to(static_cast<int>(peer));
    std::byte* const to = ring.free_chunk();
    if (to == nullptr) return false;
    const std::uint64_t bytes = next_chunk(part);
    std::memcpy(to, input_ + part.next, bytes);
    publish(ring, bytes);
    part.next += bytes;
    return true;
  }

  bool reduce() {
    if (reduced_.empty()) return false;
    std::byte* const shared = gather_ ? rings_->to_all().free_chunk() : nullptr;
    if (gather_ && shared == nullptr) return false;
    const std::uint64_t bytes = next_chunk(reduced_);
    for (std::size_t peer = 0; peer < inputs_.size(); ++peer) {
      inputs_[peer] = peer == rank_ ? input_ + reduced_.next : contribution_of(peer);
      if (inputs_[peer] == nullptr) return false;
    }
    reduce_chunk(output_ + (reduced_.next - output_begin_), shared, bytes);
    for (std::size_t peer = 0; peer < inputs_.size(); ++peer)
      if (peer != rank_) rings_->from(static_cast<int>(peer)).release();
    if (gather_) publish(rings_->to_all(), bytes);
    reduced_.next += bytes;
    return true;
  }

  /// Copies each tile of the result to `shared` (if not null) while it is in the L1 cache.
  void reduce_chunk(std::byte* to, std::byte* shared, std::uint64_t bytes) {
    constexpr std::uint64_t kTileBytes = 8192;
    const std::uint64_t width = size_of(dtype_);
    for (std::uint64_t done = 0; done < bytes;) {
      const std::uint64_t tile = std::min(kTileBytes, bytes - done);
      reduce_in_order(inputs_, to + done, tile / width, dtype_, op_);
      if (shared != nullptr) std::memcpy(shared + done, to + done, tile);
      for (const void*& input : inputs_) input = static_cast<const std::byte*>(input) + tile;
      done += tile;
    }
  }

  const std::byte* const input_;
  std::byte* const output_;
  std::uint64_t output_begin_ = 0;  // for reduce_scatter, the output has this rank's part only
  const DType dtype_;
  const ReduceOp op_;
  const std::size_t rank_;
  const bool gather_;
  std::vector<const void*> inputs_;  // one chunk of each rank
  std::vector<Span> contributions_;  // to the part of each rank
  Span reduced_;                     // this rank's part
  std::vector<Span> results_;        // parts of each rank; empty for reduce_scatter
};

/// Each rank passes its bytes to all other ranks, which copy them.
class SharedCopy final : public SharedOperation {
 public:
  /// The bytes of rank r go to `to[r]`. `own` are the bytes of this rank; null if it has none. An
  /// empty `to[r]` means that rank r has none.
  SharedCopy(std::shared_ptr<SharedRings> rings, SentCount& sent, const std::byte* own,
             std::vector<std::byte*> to, std::uint64_t bytes)
      : SharedOperation(std::move(rings), sent, bytes), own_(own), to_(std::move(to)) {
    for (const std::byte* one : to_) parts_.push_back({0, one == nullptr ? 0 : bytes});
  }

 private:
  bool move() override {
    const auto rank = static_cast<std::size_t>(rings_->rank());
    bool moved = pass(rank);
    for (std::size_t step = 1; step < to_.size(); ++step) {
      const std::size_t owner = (rank + step) % to_.size();
      moved = take(owner, parts_[owner], to_[owner]) || moved;
    }
    return moved;
  }

  [[nodiscard]] bool moved_all() const override { return all_empty(parts_); }

  bool pass(std::size_t rank) {
    Span& part = parts_[rank];
    if (part.empty()) return false;
    std::byte* const shared = rings_->to_all().free_chunk();
    if (shared == nullptr) return false;
    const std::uint64_t bytes = next_chunk(part);
    std::memcpy(shared, own_ + part.next, bytes);
    publish(rings_->to_all(), bytes);
    if (own_ != to_[rank]) std::memcpy(to_[rank] + part.next, own_ + part.next, bytes);
    part.next += bytes;
    return true;
  }

  const std::byte* const own_;
  const std::vector<std::byte*> to_;
  std::vector<Span> parts_;
};

}  // namespace

std::unique_ptr<Operation> make_shared_all_reduce(std::shared_ptr<SharedRings> rings,
                                                  SentCount& sent, const Reduction& request) {
  const std::vector<std::uint64_t> bounds = all_reduce_bounds(rings->size(), request);
  return std::make_unique<SharedReduce>(std::move(rings), sent, request, bounds, /*gather=*/true);
}

std::unique_ptr<Operation> make_shared_reduce_scatter(std::shared_ptr<SharedRings> rings,
                                                      SentCount& sent, const Reduction& request) {
  const std::vector<std::uint64_t> bounds = reduce_scatter_bounds(rings->size(), request);
  return std::make_unique<SharedReduce>(std::move(rings), sent, request, bounds, /*gather=*/false);
}

std::unique_ptr<Operation> make_shared_all_gather(std::shared_ptr<SharedRings> rings,
                                                  SentCount& sent, const AllGather& request) {
  std::vector<std::byte*> to;
  for (std::uint64_t rank = 0; rank < static_cast<std::uint64_t>(rings->size()); ++rank)
    to.push_back(static_cast<std::byte*>(request.output) + rank * request.bytes());
  return std::make_unique<SharedCopy>(std::move(rings), sent,
                                      static_cast<const std::byte*>(request.input), std::move(to),
                                      request.bytes());
}

std::unique_ptr<Operation> make_shared_broadcast(std::shared_ptr<SharedRings> rings,
                                                 SentCount& sent, const Broadcast& request) {
  std::vector<std::byte*> to(static_cast<std::size_t>(rings->size()), nullptr);
  auto* const data = static_cast<std::byte*>(request.data);
  to[static_cast<std::size_t>(request.root)] = data;
  return std::make_unique<SharedCopy>(std::move(rings), sent, data, std::move(to), request.bytes());
}

}  // namespace trireme::comm
