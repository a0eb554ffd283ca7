#include "comm/shared/shared_rings.hpp"

#include <algorithm>
#include <limits>

#include "core/error.hpp"

namespace trireme::comm {
namespace {

static_assert(std::atomic<std::uint64_t>::is_always_lock_free);  // other processes use the counts

constexpr std::uint64_t kCacheLine = 64;
constexpr std::uint64_t kSegmentAlign = 4096;
constexpr std::uint64_t kLeastChunk = 4096;
constexpr std::uint64_t kFullRings = 4;  // a segment with more rings has smaller ones

std::uint64_t rounded_up(std::uint64_t value, std::uint64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// The parts of one rank's segment: the heads of its rings, the counts of their readers, and the
/// chunks. Ring `r` goes to rank r. The ring at the rank's own index goes to all other ranks.
struct RingSegment {
  RingSegment(std::byte* segment, const RingLayout& layout)
      : heads(reinterpret_cast<RingHead*>(segment)),
        released(reinterpret_cast<RingCount*>(heads + layout.ranks)),
        released_of_all(released + layout.ranks),
        chunks(reinterpret_cast<std::byte*>(released_of_all + layout.ranks)),
        ring_bytes(kRingChunks * layout.chunk_bytes) {}

  [[nodiscard]] std::byte* chunks_of(std::size_t ring) const { return chunks + ring * ring_bytes; }

  RingHead* heads;
  RingCount* released;         // [r]: chunks of ring r that rank r has released
  RingCount* released_of_all;  // [r]: chunks of the ring to all that rank r has released
  std::byte* chunks;
  std::uint64_t ring_bytes;
};

}  // namespace

std::byte* RingWriter::free_chunk() {
  if (written_ - released_ == kRingChunks) {
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (const RingCount* reader : readers_)
      least = std::min(least, reader->value.load(std::memory_order_acquire));
    released_ = least;
    if (written_ - released_ == kRingChunks) return nullptr;
  }
  return chunks_ + written_ % kRingChunks * chunk_bytes_;
}

void RingWriter::publish(std::uint64_t operation_bytes) {
  head_->bytes[written_ % kRingChunks] = operation_bytes;
  head_->written.store(++written_, std::memory_order_release);
}

const std::byte* RingReader::chunk(std::uint64_t operation_bytes) {
  if (read_ == written_) {
    written_ = head_->written.load(std::memory_order_acquire);
    if (read_ == written_) return nullptr;
  }
  const std::size_t index = read_ % kRingChunks;
  if (head_->bytes[index] != operation_bytes)
    fail(
        ErrorKind::usage,
        "rank {} sends {} bytes where {} are expected; the ranks called the operation with different sizes",
        writer_, head_->bytes[index], operation_bytes);
  return chunks_ + index * chunk_bytes_;
}

void RingReader::release() {
  released_->value.store(++read_, std::memory_order_release);
}

RingLayout RingLayout::of(int ranks, std::uint64_t ring_bytes, std::uint64_t most_chunk_bytes) {
  const auto n = static_cast<std::uint64_t>(ranks);
  const std::uint64_t chunks = std::max(n, kFullRings) * kRingChunks;
  const std::uint64_t chunk = std::max(kFullRings * ring_bytes / chunks, kLeastChunk);
  return {n, rounded_up(std::clamp<std::uint64_t>(chunk, 1, most_chunk_bytes), kCacheLine)};
}

std::uint64_t RingLayout::segment_bytes() const {
  const std::uint64_t counts = ranks * (sizeof(RingHead) + 2 * sizeof(RingCount));
  return rounded_up(counts + ranks * kRingChunks * chunk_bytes, kSegmentAlign);
}

SharedRings::SharedRings(std::unique_ptr<SharedWindow> window, const RingLayout& layout, int rank,
                         bool spins)
    : window_(std::move(window)), layout_(layout), rank_(rank), spins_(spins) {
  TRIREME_ASSERT(window_->name().bytes == layout.window_bytes());
  const auto me = static_cast<std::size_t>(rank);
  const auto segment_of = [&](std::size_t owner) {
    return RingSegment(window_->data() + owner * layout.segment_bytes(), layout);
  };
  const RingSegment mine = segment_of(me);
  for (std::size_t peer = 0; peer < layout.ranks; ++peer) {
    std::vector<RingCount*> readers;
    for (std::size_t r = 0; peer == me && r < layout.ranks; ++r)
      if (r != me) readers.push_back(mine.released_of_all + r);
    if (peer != me) readers.push_back(mine.released + peer);
    to_.emplace_back(mine.heads + peer, std::move(readers), mine.chunks_of(peer),
                     layout.chunk_bytes);
    const RingSegment theirs = segment_of(peer);
    const int writer = static_cast<int>(peer);
    from_.emplace_back(writer, theirs.heads + me, theirs.released + me, theirs.chunks_of(me),
                       layout.chunk_bytes);
    all_from_.emplace_back(writer, theirs.heads + peer, theirs.released_of_all + me,
                           theirs.chunks_of(peer), layout.chunk_bytes);
  }
}

bool SharedRings::is_turn(std::uint64_t turn) const {
  if (abandoned_)
    fail(ErrorKind::comm,
         "an earlier operation of this group did not complete, so the group cannot be used");
  return completed_ == turn;
}

}  // namespace trireme::comm
