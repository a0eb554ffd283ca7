#include "text/learn/merge_learner.hpp"

#include <algorithm>

#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

/// Distance of the prefetch, in positions. A memory access takes about as long as 16 merges.
constexpr std::size_t kAhead = 16;

/// Returns the index of the run that contains `place`, starting at `at`. Positions ascend, so the
/// run is near.
template <class Run, class Position>
std::size_t run_at(const std::vector<Run>& runs, std::size_t at, Position place) {
  std::size_t step = 1;
  while (at + step < runs.size() && runs[at + step].begin <= place) {
    at += step;
    step *= 2;
  }
  for (; step != 0; step /= 2) {
    if (at + step < runs.size() && runs[at + step].begin <= place) at += step;
  }
  return at;
}

}  // namespace

template <class Position>
MergeLearner<Position>::MergeLearner(std::vector<std::string> tokens)
    : tokens_(std::move(tokens)), symbols_(1, kBetween) {
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    ids_.emplace(tokens_[id], static_cast<std::uint32_t>(id));
    lengths_.push_back(static_cast<std::uint32_t>(utf8_length(tokens_[id])));
  }
}

template <class Position>
void MergeLearner<Position>::reserve(std::uint64_t words, std::uint64_t symbols) {
  symbols_.reserve(1 + words + symbols);
}

template <class Position>
void MergeLearner<Position>::add_word(std::span<const std::uint32_t> ids, std::uint64_t count) {
  const auto signed_count = static_cast<std::int64_t>(count);
  if (runs_.empty() || runs_.back().count != signed_count)
    runs_.push_back({static_cast<Position>(symbols_.size()), signed_count});
  symbols_.insert(symbols_.end(), ids.begin(), ids.end());
  symbols_.push_back(kBetween);
}

template <class Position>
void MergeLearner<Position>::count_pairs() {
  struct First {
    std::int64_t count = 0;
    std::uint64_t times = 0;
    std::uint64_t fill = 0;
  };

  IdPairTable<First> first;
  const auto each_pair = [this](auto&& visit) {
    std::size_t run = 0;
    for (std::size_t i = 1; i + 1 < symbols_.size(); ++i) {
      if (run + 1 < runs_.size() && runs_[run + 1].begin <= i) ++run;
      if (symbols_[i] != kBetween && symbols_[i + 1] != kBetween)
        visit(i, id_pair(symbols_[i], symbols_[i + 1]), runs_[run].count);
    }
  };
  each_pair([&](std::size_t, IdPair pair, std::int64_t count) {
    First& found = first[pair];
    found.count += count;
    ++found.times;
  });
  std::uint64_t total = 0;
  first.for_each([&](IdPair pair, First& found) {
    found.fill = total;
    heap_.push_back({found.count, pair, total, found.times, 0});
    total += found.times;
    counts_[pair] = found.count;
    max_count_ = std::max(max_count_, static_cast<std::uint64_t>(found.count));
  });
  std::make_heap(heap_.begin(), heap_.end());
  places_.emplace_back(total);
  each_pair([&](std::size_t i, IdPair pair, std::int64_t) {
    places_[0][first.find(pair)->fill++] = static_cast<Position>(i);
  });
}

template <class Position>
std::uint32_t MergeLearner<Position>::token_of(IdPair pair) {
  const std::uint64_t left = pair >> 32;
  const std::uint64_t right = pair & 0xFFFFFFFF;
  const auto [found, is_new] =
      ids_.emplace(tokens_[left] + tokens_[right], static_cast<std::uint32_t>(tokens_.size()));
  if (is_new) {
    tokens_.push_back(found->first);
    lengths_.push_back(lengths_[left] + lengths_[right]);
  }
  return found->second;  // an old id if a reserved token has the same text
}

/// Joins all occurrences into one token and sums the counts that pairs of the parts with their
/// neighbours lose.
template <class Position>
void MergeLearner<Position>::join_places(const Candidate& candidate, std::uint32_t result) {
  const auto left = static_cast<std::uint32_t>(candidate.pair >> 32);
  const auto right = static_cast<std::uint32_t>(candidate.pair);
  const std::uint64_t left_length = lengths_[left];
  const std::uint64_t length = left_length + lengths_[right];
  const Position* const places = places_[candidate.list].data() + candidate.begin;
  std::uint32_t* const symbols = symbols_.data();
  std::size_t run = 0;
  merged_.clear();
  for (std::uint64_t i = 0; i < candidate.size; ++i) {
    if (i + kAhead < candidate.size) __builtin_prefetch(symbols + places[i + kAhead], 1);
    const Position place = places[i];
    std::uint32_t* const token = symbols + place;
    if (token[0] != left || token[left_length] != right) continue;
    run = run_at(runs_, run, place);
    const std::int64_t count = runs_[run].count;
    // If the symbol before is a new token, the pair between them was subtracted already.
    if (token[-1] != kBetween && token[-1] != result) before_.touch(token[-1]).lost += count;
    if (token[length] != kBetween) after_.touch(token[length]).lost += count;
    token[left_length - 1] = kInside;
    token[left_length] = kInside;
    token[0] = result;
    token[length - 1] = result;
    merged_.push_back({.place = place, .count = count});
  }
}

/// Sums the pairs of the new token with its neighbours, after all occurrences are joined.
template <class Position>
void MergeLearner<Position>::gain_pairs(std::uint32_t result, std::uint64_t max_length) {
  const std::uint64_t length = lengths_[result];
  for (std::size_t i = 0; i < merged_.size(); ++i) {
    if (i + kAhead < merged_.size())
      __builtin_prefetch(symbols_.data() + merged_[i + kAhead].place);
    Merged& merged = merged_[i];
    const std::uint32_t* const token = symbols_.data() + merged.place;
    merged.before = token[-1];
    merged.after = token[length];
    // Two adjacent new tokens form one pair, which the first token counts.
    if (merged.before == result ||
        (merged.before != kBetween && lengths_[merged.before] + length >= max_length))
      merged.before = kBetween;
    if (merged.after != kBetween && lengths_[merged.after] + length >= max_length)
      merged.after = kBetween;
    for (const auto& [side, id] : {std::pair(&before_, merged.before), {&after_, merged.after}}) {
      if (id == kBetween) continue;
      Neighbour& neighbour = side->touch(id);
      neighbour.gained += merged.count;
      ++neighbour.times;
    }
  }
}

template <class Position>
void MergeLearner<Position>::subtract_lost(IdPair pair) {
  const auto left = static_cast<std::uint32_t>(pair >> 32);
  const auto right = static_cast<std::uint32_t>(pair);
  // The pair is absent if max_length excluded it.
  const auto subtract = [this](IdPair lost, std::int64_t count) {
    if (std::int64_t* const found = count == 0 ? nullptr : counts_.find(lost)) *found -= count;
  };
  for (const std::uint32_t id : before_.touched) counts_.fetch(id_pair(id, left));
  for (const std::uint32_t id : before_.touched) subtract(id_pair(id, left), before_.of[id].lost);
  for (const std::uint32_t id : after_.touched) counts_.fetch(id_pair(right, id));
  for (const std::uint32_t id : after_.touched) subtract(id_pair(right, id), after_.of[id].lost);
}

template <class Position>
void MergeLearner<Position>::push_gained(std::uint32_t result) {
  const auto list = static_cast<std::uint32_t>(places_.size());
  std::uint64_t total = 0;
  const auto push = [&](IdPair pair, Neighbour& neighbour) {
    if (neighbour.times == 0) return;
    std::int64_t& count = counts_[pair];
    count += neighbour.gained;
    neighbour.fill = total;
    heap_.push_back({count, pair, total, neighbour.times, list});
    std::push_heap(heap_.begin(), heap_.end());
    total += neighbour.times;
  };
  for (const std::uint32_t id : before_.touched) push(id_pair(id, result), before_.of[id]);
  for (const std::uint32_t id : after_.touched) push(id_pair(result, id), after_.of[id]);
  std::vector<Position>& places = places_.emplace_back(total);
  for (const Merged& merged : merged_) {
    if (merged.before != kBetween) {
      places[before_.of[merged.before].fill++] =
          static_cast<Position>(merged.place - lengths_[merged.before]);
    }
    if (merged.after != kBetween) places[after_.of[merged.after].fill++] = merged.place;
  }
}

template <class Position>
void MergeLearner<Position>::merge(const Candidate& candidate, std::uint32_t result,
                                   std::uint64_t max_length) {
  before_.of.resize(tokens_.size());
  after_.of.resize(tokens_.size());
  join_places(candidate, result);
  gain_pairs(result, max_length);
  subtract_lost(candidate.pair);
  push_gained(result);
  for (Side* const side : {&before_, &after_}) {
    for (const std::uint32_t id : side->touched) side->of[id] = {};
    side->touched.clear();
  }
}

template <class Position>
void MergeLearner<Position>::learn(std::size_t vocab_size, std::uint64_t min_frequency,
                                   std::uint64_t max_length) {
  if (tokens_.size() >= vocab_size) return;
  count_pairs();
  while (tokens_.size() < vocab_size && !heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    Candidate& top = heap_.back();
    // A count in the heap may be outdated. Such an entry returns to the heap with its current
    // count.
    if (const std::int64_t count = *counts_.find(top.pair); top.count != count) {
      top.count = count;
      std::push_heap(heap_.begin(), heap_.end());
      continue;
    }
    if (top.count < 1 || static_cast<std::uint64_t>(top.count) < min_frequency) break;
    const Candidate candidate = top;
    heap_.pop_back();
    merges_.push_back(candidate.pair);
    merge(candidate, token_of(candidate.pair), max_length);
  }
}

template class MergeLearner<std::uint32_t>;
template class MergeLearner<std::uint64_t>;

}  // namespace trireme::text
