#include "parallel/context/sequence_sharding.hpp"

#include <algorithm>
#include <numeric>

#include "core/error.hpp"

namespace trireme::parallel {
namespace {

using Ranges = std::vector<ops::TokenRange>;
using RankRanges = std::vector<Ranges>;  // by rank

/// Counts the attention work of one whole row: its visible (query, key) pairs.
class RowWork {
 public:
  RowWork(const ops::AttentionSetup& rows, std::size_t row, std::int64_t length) {
    ops::AttentionSetup setup{.mask = rows.mask};
    if (!rows.bounds.empty()) setup.bounds = {rows.bounds[row]};
    for (const ops::DocumentPlan& document : ops::plan_attention(setup, 1, length, length))
      parts_.insert(parts_.end(), document.queries.begin(), document.queries.end());
  }

  [[nodiscard]] std::int64_t of(const Ranges& ranges) const {
    std::int64_t work = 0;
    for (const ops::TokenRange& range : ranges) {
      for (const ops::QueryPart& part : parts_) {
        const std::int64_t first = std::max(range.first, part.tokens.first);
        const std::int64_t end =
            std::min(range.first + range.length, part.tokens.first + part.tokens.length);
        if (first < end) work += part.slice(first - part.tokens.first, end - first).num_pairs();
      }
    }
    return work;
  }

  [[nodiscard]] std::int64_t most(const RankRanges& shares) const {
    std::int64_t most = 0;
    for (const Ranges& ranges : shares) most = std::max(most, of(ranges));
    return most;
  }

 private:
  std::vector<ops::QueryPart> parts_;
};

RankRanges zigzag(std::int64_t length, std::int64_t ranks) {
  const std::int64_t chunk = length / (2 * ranks);
  RankRanges shares(static_cast<std::size_t>(ranks));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    Ranges& ranges = shares[static_cast<std::size_t>(rank)];
    ops::append(ranges, {rank * chunk, chunk});
    ops::append(ranges, {(2 * ranks - 1 - rank) * chunk, chunk});
  }
  return shares;
}

/// Returns the largest number of chunks per rank, at most 16, that divides a rank's positions into
/// equal chunks that are not too small. A chunk below 64 positions would waste a part of an
/// attention kernel's tile.
std::int64_t chunks_per_rank(std::int64_t positions, std::int64_t ranks) {
  constexpr std::int64_t kMost = 16;
  constexpr std::int64_t kTile = 64;
  const std::int64_t smallest = std::clamp<std::int64_t>(positions / (2 * ranks), 1, kTile);
  std::int64_t blocks = 1;
  for (std::int64_t n = 2; n <= kMost; ++n) {
    if (positions % n == 0 && positions / n >= smallest) blocks = n;
  }
  return blocks;
}

RankRanges balance_by_work(const RowWork& row, std::int64_t length, std::int64_t ranks) {
  const std::int64_t each = chunks_per_rank(length / ranks, ranks);
  const std::int64_t size = length / ranks / each;
  std::vector<std::int64_t> blocks(static_cast<std::size_t>(each * ranks));
  std::iota(blocks.begin(), blocks.end(), 0);
  std::vector<std::int64_t> works;
  for (const std::int64_t block : blocks) works.push_back(row.of({{block * size, size}}));
  const auto work = [&](std::int64_t block) { return works[static_cast<std::size_t>(block)]; };
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
  RankRanges shares(held.size());
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    std::sort(held[rank].begin(), held[rank].end());
    for (const std::int64_t block : held[rank]) ops::append(shares[rank], {block * size, size});
  }
  return shares;
}

}  // namespace

std::vector<ops::RowPositions> shard_positions(ContextBalance balance,
                                               const ops::AttentionSetup& rows, std::int64_t batch,
                                               std::int64_t length, int ranks) {
  const std::int64_t chunks = 2 * static_cast<std::int64_t>(ranks);
  if (ranks > 1 && length % chunks != 0)
    fail(
        ErrorKind::usage,
        "a row has {} positions; the number must be divisible by {} (two chunks for each of {} context-parallel ranks)",
        length, chunks, ranks);
  std::vector<ops::RowPositions> positions(static_cast<std::size_t>(ranks));
  for (std::size_t row = 0; row < static_cast<std::size_t>(batch); ++row) {
    RankRanges shares = ranks == 1 ? RankRanges{{{0, length}}} : zigzag(length, ranks);
    if (balance == ContextBalance::work && ranks > 1) {
      const RowWork work(rows, row, length);
      RankRanges by_work = balance_by_work(work, length, ranks);
      if (work.most(by_work) < work.most(shares)) shares = std::move(by_work);
    }
    for (std::size_t rank = 0; rank < positions.size(); ++rank)
      positions[rank].push_back(std::move(shares[rank]));
  }
  return positions;
}

double work_imbalance(const std::vector<ops::RowPositions>& positions,
                      const ops::AttentionSetup& rows) {
  std::vector<std::int64_t> work(positions.size(), 0);
  for (std::size_t row = 0; row < positions.front().size(); ++row) {
    std::int64_t length = 0;
    for (const ops::RowPositions& rank : positions)
      for (const ops::TokenRange& range : rank[row]) length += range.length;
    const RowWork row_work(rows, row, length);
    for (std::size_t rank = 0; rank < positions.size(); ++rank)
      work[rank] += row_work.of(positions[rank][row]);
  }
  const std::int64_t total = std::accumulate(work.begin(), work.end(), std::int64_t{0});
  if (total == 0) return 1.0;
  const std::int64_t most = *std::max_element(work.begin(), work.end());
  return static_cast<double>(most) * static_cast<double>(positions.size()) /
         static_cast<double>(total);
}

}  // namespace trireme::parallel
