#include "data/sequences/pairs.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.hpp"

namespace trireme::data {
namespace {

Pair::Side part_of(Pair::Side side, std::uint64_t begin, std::uint64_t end) {
  side.ids.resize(end);
  side.ids.erase(side.ids.begin(), side.ids.begin() + static_cast<std::ptrdiff_t>(begin));
  return side;
}

}  // namespace

Pairs::Pairs(const TokenSet& set, std::int64_t seq_len, const DocumentRange& documents)
    : set_(set),
      rule_(set.manifest().pair_cut_rule()),
      seq_len_(static_cast<std::uint64_t>(seq_len)) {
  std::uint64_t first = 0;  // first document of the shard, counted over the set
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
    : set_(before.set_), rule_(before.rule_), seq_len_(static_cast<std::uint64_t>(seq_len)) {
  std::map<std::size_t, std::vector<std::uint32_t>> left;  // key: shard
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

std::vector<std::uint32_t> Pairs::kept_documents(std::size_t shard,
                                                 std::vector<std::uint32_t> documents) const {
  const PairTable table = set_.shard(shard).pairs();
  const SetContent& content = set_.shard(shard).contents();
  std::erase_if(documents, [&](std::uint32_t doc) {
    const PairLengths lengths = table.lengths(doc);
    const auto cut = cut_pair(lengths, seq_len_, rule_);
    return !cut ||
           !content.keeps(lengths, *cut, table.chosen.of(doc), table.rejected.of(doc), rule_);
  });
  return documents;
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
  if (cuts()) documents = kept_documents(shard, std::move(documents));
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

std::int64_t Pairs::num_targets(std::uint64_t position, bool answers_only) const {
  const Place place = locate(position);
  const PairShape shape = set_.shard(place.shard).pair_shape(place.document);
  const auto cut = cut_pair(shape.lengths(), seq_len_, rule_);
  if (!cut) return 0;
  const std::uint64_t begin =
      answers_only ? std::max(cut->begin, before_answer(shape.prompt_len)) : cut->begin;
  const auto count = [&](std::span<const Span> spans, std::uint64_t end) -> std::int64_t {
    if (begin >= end) return 0;
    return count_targets(spans, static_cast<std::uint32_t>(begin),
                         static_cast<std::uint32_t>(end - begin));
  };
  return count(shape.chosen, cut->chosen_end) + count(shape.rejected, cut->rejected_end);
}

Pair Pairs::read(const Place& place) const {
  const TokenShard& shard = set_.shard(place.shard);
  Pair pair = shard.pair(place.document);
  if (pair.chosen.ids.empty() || pair.rejected.ids.empty()) {
    fail(ErrorKind::data, "{}: a side of pair {} has no tokens", shard.path().string(),
         place.document);
  }
  for (const Pair::Side* side : {&pair.chosen, &pair.rejected}) {
    for (const std::int64_t id : side->ids) {
      if (id < static_cast<std::int64_t>(set_.vocab_size())) continue;
      fail(ErrorKind::data, "{}: token {} in pair {}, but the vocabulary has {} tokens",
           shard.path().string(), id, place.document, set_.vocab_size());
    }
  }
  return pair;
}

std::optional<CutPair> Pairs::cut(Pair pair) const {
  const auto cut = cut_pair({pair.prompt_len, pair.chosen.ids.size(), pair.rejected.ids.size()},
                            seq_len_, rule_);
  if (!cut) return std::nullopt;
  const std::uint64_t end = std::max(cut->chosen_end, cut->rejected_end);
  const std::uint64_t prompt = std::min<std::uint64_t>(pair.prompt_len, end);
  return CutPair{static_cast<std::uint32_t>(cut->begin),
                 static_cast<std::uint32_t>(prompt - cut->begin),
                 part_of(std::move(pair.chosen), cut->begin, cut->chosen_end),
                 part_of(std::move(pair.rejected), cut->begin, cut->rejected_end)};
}

CutPair Pairs::pair(std::uint64_t position) const {
  const Place place = locate(position);
  std::optional<CutPair> pair = cut(read(place));
  if (!pair) {
    fail(ErrorKind::data, "{}: a side of pair {} has more than {} tokens",
         set_.shard(place.shard).path().string(), place.document, seq_len_);
  }
  return *std::move(pair);
}

bool Pairs::is_kept(const Place& place) const {
  const TokenShard& shard = set_.shard(place.shard);
  const PairShape shape = shard.pair_shape(place.document);
  const auto cut = cut_pair(shape.lengths(), seq_len_, rule_);
  return cut && shard.contents().keeps(shape.lengths(), *cut, shape.chosen, shape.rejected, rule_);
}

CutPair Pairs::with_other_prompt(std::uint64_t position) const {
  constexpr std::uint64_t kMostCompared = 64;
  const CutPair own = pair(position);
  const auto prompt_of = [](const CutPair& pair) {
    return std::span(pair.answer().ids).first(pair.prompt_len);
  };
  std::optional<CutPair> nearest;
  std::uint64_t num_compared = 0;
  Place place = locate(position);
  for (std::uint64_t i = 1; i < set_.num_documents() && num_compared < kMostCompared; ++i) {
    while (place.document == 0) {
      place.shard = (place.shard == 0 ? set_.num_shards() : place.shard) - 1;
      place.document = set_.manifest().shards[place.shard].counts.documents;
    }
    --place.document;
    if (!is_kept(place)) continue;
    ++num_compared;
    std::optional<CutPair> other = cut(read(place));
    if (!std::ranges::equal(prompt_of(*other), prompt_of(own))) return *std::move(other);
    if (!nearest) nearest = std::move(other);
  }
  return nearest ? *std::move(nearest) : own;
}

std::uint64_t Pairs::document(std::uint64_t position) const {
  const Place place = locate(position);
  std::uint64_t before = 0;
  for (std::size_t i = 0; i < place.shard; ++i)
    before += set_.manifest().shards[i].counts.documents;
  return before + place.document;
}

}  // namespace trireme::data
