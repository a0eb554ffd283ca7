#include "data/sequences/pairs.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.hpp"

namespace trireme {
namespace {

struct SideTargets {
  std::uint32_t chosen = 0;
  std::uint32_t rejected = 0;
};

SideTargets targets_left(std::span<const Span> chosen, std::span<const Span> rejected,
                         const PairCut& cut) {
  const auto begin = static_cast<std::uint32_t>(cut.begin);
  const auto count = [&](std::span<const Span> spans, std::uint64_t end) {
    return count_targets(spans, begin, static_cast<std::uint32_t>(end) - begin);
  };
  return {count(chosen, cut.chosen_end), count(rejected, cut.rejected_end)};
}

PairCut cut_of(std::uint64_t prompt, std::uint64_t chosen, std::uint64_t rejected,
               std::uint64_t seq_len) {
  return cut_pair(prompt, prompt + chosen, prompt + rejected, seq_len);
}

/// Of the pairs `documents` of a shard those that have targets on both sides at this length.
std::vector<std::uint32_t> with_targets(const TokenShard& shard, std::uint64_t seq_len,
                                        std::vector<std::uint32_t> documents) {
  const PairTable table = shard.pairs();
  std::erase_if(documents, [&](std::uint32_t doc) {
    const PairCut cut =
        cut_of(table.prompt_len[doc], table.chosen_len[doc], table.rejected_len[doc], seq_len);
    const SideTargets left = targets_left(table.chosen.of(doc), table.rejected.of(doc), cut);
    return left.chosen == 0 || left.rejected == 0;
  });
  return documents;
}

Pair::Side part_of(Pair::Side side, std::uint64_t begin, std::uint64_t end) {
  side.ids.resize(end);
  side.ids.erase(side.ids.begin(), side.ids.begin() + static_cast<std::ptrdiff_t>(begin));
  return side;
}

}  // namespace

Pairs::Pairs(const TokenSet& set, std::int64_t seq_len, const DocumentRange& documents)
    : set_(set), seq_len_(static_cast<std::uint64_t>(seq_len)) {
  std::uint64_t first = 0;  // document of the shard, in the set
  for (std::size_t i = 0; i < set.num_shards(); ++i) {
    const std::uint64_t count = set.manifest().shards[i].counts.documents;
    const std::uint64_t begin = std::clamp(documents.begin, first, first + count) - first;
    const std::uint64_t end = std::clamp(documents.end, first, first + count) - first;
    first += count;
    add(i, begin, end - begin);
  }
}

Pairs::Pairs(const Pairs& before, const std::function<bool(std::uint64_t)>& taken,
             std::int64_t seq_len)
    : set_(before.set_), seq_len_(static_cast<std::uint64_t>(seq_len)) {
  std::map<std::size_t, std::vector<std::uint32_t>> left;  // by shard
  for (std::uint64_t position = 0; position < before.size(); ++position) {
    if (taken(position)) continue;
    const Place place = before.locate(position);
    left[place.shard].push_back(static_cast<std::uint32_t>(place.document));
  }
  for (auto& [shard, documents] : left) add(shard, std::move(documents));
}

bool Pairs::cuts() const {
  return seq_len_ < static_cast<std::uint64_t>(set_.seq_len());
}

void Pairs::add(std::size_t shard, std::uint64_t begin, std::uint64_t count) {
  if (count == 0) return;
  if (cuts()) {
    std::vector<std::uint32_t> documents(count);
    std::iota(documents.begin(), documents.end(), static_cast<std::uint32_t>(begin));
    return add(shard, std::move(documents));
  }
  parts_.push_back({shard, begin, {}});
  first_.push_back(first_.back() + count);
}

void Pairs::add(std::size_t shard, std::vector<std::uint32_t> documents) {
  if (cuts()) documents = with_targets(set_.shard(shard), seq_len_, std::move(documents));
  if (documents.empty()) return;
  first_.push_back(first_.back() + documents.size());
  parts_.push_back({shard, 0, std::move(documents)});
}

Pairs::Place Pairs::locate(std::uint64_t position) const {
  TRIREME_ASSERT(position < size());
  const auto after = std::upper_bound(first_.begin(), first_.end(), position);
  const auto index = static_cast<std::size_t>(after - first_.begin()) - 1;
  const Part& part = parts_[index];
  const std::uint64_t inside = position - first_[index];
  return {part.shard, part.kept ? (*part.kept)[inside] : part.begin + inside};
}

std::int64_t Pairs::num_targets(std::uint64_t position) const {
  const Place place = locate(position);
  const PairShape shape = set_.shard(place.shard).pair_shape(place.document);
  const PairCut cut = cut_of(shape.prompt_len, shape.chosen_len, shape.rejected_len, seq_len_);
  const SideTargets left = targets_left(shape.chosen, shape.rejected, cut);
  return std::int64_t{left.chosen} + left.rejected;
}

CutPair Pairs::pair(std::uint64_t position) const {
  const Place place = locate(position);
  const TokenShard& shard = set_.shard(place.shard);
  Pair pair = shard.pair(place.document);
  if (pair.chosen.ids.empty() || pair.rejected.ids.empty()) {
    fail(ErrorKind::data, "{}: a side of pair {} has no tokens", shard.path().string(),
         place.document);
  }
  for (const Pair::Side* side : {&pair.chosen, &pair.rejected}) {
    for (const std::int64_t id : side->ids) {
      if (id < static_cast<std::int64_t>(set_.vocab_size())) continue;
      fail(ErrorKind::data, "{}: token {} in pair {}, the vocabulary has {}", shard.path().string(),
           id, place.document, set_.vocab_size());
    }
  }
  const PairCut cut =
      cut_pair(pair.prompt_len, pair.chosen.ids.size(), pair.rejected.ids.size(), seq_len_);
  return {static_cast<std::uint32_t>(cut.begin),
          part_of(std::move(pair.chosen), cut.begin, cut.chosen_end),
          part_of(std::move(pair.rejected), cut.begin, cut.rejected_end)};
}

std::uint64_t Pairs::document(std::uint64_t position) const {
  const Place place = locate(position);
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < place.shard; ++i)
    before += set_.manifest().shards[i].counts.documents;
  return before + place.document;
}

}  // namespace trireme
