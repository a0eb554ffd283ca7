#include "parallel/context/dealing.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"

namespace trireme {
namespace {

using Ranges = std::vector<ops::TokenRange>;
using RowShares = std::vector<Ranges>;  // of each rank
using Edges = std::vector<std::int64_t>;

void append(Ranges& ranges, ops::TokenRange range) {
  if (!ranges.empty() && ranges.back().first + ranges.back().length == range.first) {
    ranges.back().length += range.length;
  } else {
    ranges.push_back(range);
  }
}

/// Keys seen by the queries of a range: 1 + 2 + ... from each document's first place on.
std::int64_t work_of(ops::TokenRange range, const Edges& edges) {
  std::int64_t work = 0;
  const std::int64_t end = range.first + range.length;
  for (std::int64_t place = range.first; place < end;) {
    const auto next = std::upper_bound(edges.begin(), edges.end(), place);
    const std::int64_t start = next == edges.begin() ? 0 : *std::prev(next);
    const std::int64_t stop = next == edges.end() ? end : std::min(end, *next);
    work += (stop - place) * (place - start + stop - start + 1) / 2;
    place = stop;
  }
  return work;
}

std::int64_t work_of(const Ranges& ranges, const Edges& edges) {
  std::int64_t work = 0;
  for (const ops::TokenRange& range : ranges) work += work_of(range, edges);
  return work;
}

std::int64_t most_work(const RowShares& shares, const Edges& edges) {
  std::int64_t most = 0;
  for (const Ranges& ranges : shares) most = std::max(most, work_of(ranges, edges));
  return most;
}

RowShares deal_zigzag(std::int64_t length, std::int64_t ranks) {
  const std::int64_t chunk = length / (2 * ranks);
  RowShares shares(static_cast<std::size_t>(ranks));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    Ranges& ranges = shares[static_cast<std::size_t>(rank)];
    append(ranges, {rank * chunk, chunk});
    append(ranges, {(2 * ranks - 1 - rank) * chunk, chunk});
  }
  return shares;
}

/// As many blocks a rank as divide its places, up to 16; small blocks would waste an attention
/// kernel's tiles of 64.
std::int64_t blocks_a_rank(std::int64_t places, std::int64_t ranks) {
  constexpr std::int64_t kMost = 16;
  constexpr std::int64_t kTile = 64;
  const std::int64_t smallest = std::clamp<std::int64_t>(places / (2 * ranks), 1, kTile);
  std::int64_t blocks = 1;
  for (std::int64_t n = 2; n <= kMost; ++n) {
    if (places % n == 0 && places / n >= smallest) blocks = n;
  }
  return blocks;
}

RowShares deal_by_work(const Edges& edges, std::int64_t length, std::int64_t ranks) {
  const std::int64_t each = blocks_a_rank(length / ranks, ranks);
  const std::int64_t size = length / ranks / each;
  const auto work = [&](std::int64_t block) { return work_of({block * size, size}, edges); };
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(each * ranks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::stable_sort(blocks.begin(), blocks.end(),
                   [&](std::int64_t a, std::int64_t b) { return work(a) > work(b); });
  std::vector<std::vector<std::int64_t>> held(static_cast<std::size_t>(ranks));
  std::vector<std::int64_t> load(held.size(), 0);
  for (const std::int64_t block : blocks) {
    std::size_t least = held.size();
    for (std::size_t rank = 0; rank < held.size(); ++rank) {
      const bool full = static_cast<std::int64_t>(held[rank].size()) == each;
      if (!full && (least == held.size() || load[rank] < load[least])) least = rank;
    }
    held[least].push_back(block);
    load[least] += work(block);
  }
  RowShares shares(held.size());
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    std::sort(held[rank].begin(), held[rank].end());
    for (const std::int64_t block : held[rank]) append(shares[rank], {block * size, size});
  }
  return shares;
}

Edges edges_of(const ops::RowBounds& bounds, std::size_t row) {
  return bounds.empty() ? Edges{} : bounds[row];
}

}  // namespace

std::vector<ops::RowPlaces> deal_places(ContextBalance balance, const ops::RowBounds& bounds,
                                        std::int64_t batch, std::int64_t length, int ranks) {
  const std::int64_t chunks = 2 * static_cast<std::int64_t>(ranks);
  if (ranks > 1 && length % chunks != 0) {
    fail(
        ErrorKind::usage,
        "a row of {} places, must be divisible by {} (two chunks for each of {} context-parallel ranks)",
        length, chunks, ranks);
  }
  std::vector<ops::RowPlaces> places(static_cast<std::size_t>(ranks));
  for (std::size_t row = 0; row < static_cast<std::size_t>(batch); ++row) {
    const Edges edges = edges_of(bounds, row);
    RowShares shares = ranks == 1 ? RowShares{{{0, length}}} : deal_zigzag(length, ranks);
    if (balance == ContextBalance::work && ranks > 1) {
      RowShares by_work = deal_by_work(edges, length, ranks);
      if (most_work(by_work, edges) < most_work(shares, edges)) shares = std::move(by_work);
    }
    for (std::size_t rank = 0; rank < places.size(); ++rank)
      places[rank].push_back(std::move(shares[rank]));
  }
  return places;
}

double work_imbalance(const std::vector<ops::RowPlaces>& places, const ops::RowBounds& bounds) {
  std::int64_t most = 0;
  std::int64_t total = 0;
  for (const ops::RowPlaces& rank : places) {
    std::int64_t work = 0;
    for (std::size_t row = 0; row < rank.size(); ++row)
      work += work_of(rank[row], edges_of(bounds, row));
    most = std::max(most, work);
    total += work;
  }
  if (total == 0) return 1.0;
  return static_cast<double>(most) * static_cast<double>(places.size()) /
         static_cast<double>(total);
}

}  // namespace trireme
