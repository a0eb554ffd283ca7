#include "data_prep/pack/partition_scheduler.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <numeric>
#include <thread>

namespace trireme::data_prep {
namespace {

constexpr std::uint64_t kNothingLeft = ~std::uint64_t{0};

/// Limits the peers polled in one serve(): each poll costs time in proportion to all peers.
constexpr std::size_t kLooksTimesPeers = 4096;

std::uint64_t sum_of(const std::vector<std::size_t>& group,
                     const std::vector<std::uint64_t>& bytes) {
  return std::accumulate(
      group.begin(), group.end(), std::uint64_t{0},
      [&](std::uint64_t sum, std::size_t partition) { return sum + bytes[partition]; });
}

void sort_largest_first(std::vector<std::vector<std::size_t>>& groups,
                        const std::vector<std::uint64_t>& bytes) {
  std::stable_sort(groups.begin(), groups.end(), [&](const auto& a, const auto& b) {
    return sum_of(a, bytes) > sum_of(b, bytes);
  });
}

std::vector<std::vector<std::size_t>> share_of(std::vector<std::vector<std::size_t>> groups,
                                               const std::vector<std::uint64_t>& bytes, int rank,
                                               int size) {
  sort_largest_first(groups, bytes);
  std::vector<std::vector<std::size_t>> mine;
  for (auto i = static_cast<std::size_t>(rank); i < groups.size();
       i += static_cast<std::size_t>(size)) {
    mine.push_back(std::move(groups[i]));
  }
  return mine;
}

void sleep_briefly() {
  std::this_thread::sleep_for(std::chrono::microseconds(300));
}

}  // namespace

PartitionQueue::PartitionQueue(std::vector<std::vector<std::size_t>> groups,
                               const std::vector<std::uint64_t>& bytes) {
  sort_largest_first(groups, bytes);
  for (const auto& group : groups) {
    if (!group.empty()) groups_.emplace_back(group.begin(), group.end());
  }
}

std::optional<std::size_t> PartitionQueue::next(int rank) {
  if (stopped_) return std::nullopt;
  std::deque<std::size_t>& mine = of_rank_[rank];
  if (mine.empty()) {
    if (groups_.empty()) return std::nullopt;
    mine = std::move(groups_.front());
    groups_.pop_front();
  }
  const std::size_t partition = mine.front();
  mine.pop_front();
  return partition;
}

/// The state that rank 0 keeps of another rank. The other rank asks for partitions until rank 0
/// answers that none is left.
struct PartitionScheduler::Peer {
  Ask ask;
  std::uint64_t answer = 0;
  comm::WorkPtr asking;
  comm::WorkPtr answering;
};

PartitionScheduler::PartitionScheduler(comm::Communicator& world,
                                       std::vector<std::vector<std::size_t>> groups,
                                       const std::vector<std::uint64_t>& bytes, bool fixed_share,
                                       OnTally on_tally)
    : world_(world),
      fixed_share_(fixed_share),
      queue_(fixed_share ? share_of(std::move(groups), bytes, world.rank(), world.size())
                         : std::move(groups),
             bytes),
      on_tally_(std::move(on_tally)) {
  if (fixed_share_ || world_.rank() != 0) return;
  for (int rank = 1; rank < world_.size(); ++rank) peers_.push_back(std::make_unique<Peer>());
  open_peers_ = peers_.size();
}

PartitionScheduler::~PartitionScheduler() = default;

std::optional<std::size_t> PartitionScheduler::next(const PartitionProgress& tally, bool stop) {
  const Ask mine{stop ? 1U : 0U, tally};
  if (!fixed_share_ && world_.rank() != 0) return ask(mine);
  take(mine);
  serve();  // a partition may take less time than the interval of serve()
  return queue_.next(0);
}

std::optional<std::size_t> PartitionScheduler::ask(const Ask& mine) {
  Ask sent = mine;
  std::uint64_t answer = 0;
  const std::array<comm::Message, 1> sends{{{0, &sent, sizeof sent}}};
  const std::array<comm::Message, 1> receives{{{0, &answer, sizeof answer}}};
  const comm::WorkPtr work =
      world_.exchange({.sends = sends, .receives = receives, .tag = "next partition"});
  while (!work->poll()) sleep_briefly();
  if (answer == kNothingLeft) return std::nullopt;
  return answer;
}

void PartitionScheduler::take(const Ask& ask) {
  on_tally_(ask.tally);
  if (ask.stop != 0) queue_.stop();
}

void PartitionScheduler::serve() {
  if (open_peers_ == 0) return;
  const std::size_t looks =
      std::clamp<std::size_t>(kLooksTimesPeers / peers_.size(), 1, peers_.size());
  for (std::size_t i = 0; i < looks; ++i) {
    next_peer_ = (next_peer_ + 1) % peers_.size();
    serve_peer(static_cast<int>(next_peer_) + 1, *peers_[next_peer_]);
  }
}

void PartitionScheduler::serve_peer(int rank, Peer& peer) {
  if (peer.answering) {
    if (!peer.answering->poll()) return;
    peer.answering.reset();
    if (peer.answer == kNothingLeft) --open_peers_;
  }
  if (peer.answer == kNothingLeft) return;
  if (!peer.asking) {
    const std::array<comm::Message, 1> receives{{{rank, &peer.ask, sizeof peer.ask}}};
    peer.asking = world_.exchange({.receives = receives, .tag = "partition request"});
  }
  if (!peer.asking->poll()) return;
  peer.asking.reset();
  take(peer.ask);
  const auto partition = queue_.next(rank);
  peer.answer = partition ? *partition : kNothingLeft;
  const std::array<comm::Message, 1> sends{{{rank, &peer.answer, sizeof peer.answer}}};
  peer.answering = world_.exchange({.sends = sends, .tag = "assigned partition"});
}

void PartitionScheduler::finish() {
  while (open_peers_ != 0) {
    serve();
    sleep_briefly();
  }
}

}  // namespace trireme::data_prep
