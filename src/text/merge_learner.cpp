#include "text/merge_learner.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"
#include "text/byte_level.hpp"

namespace trireme {
namespace {

MergeLearner::Pair pair_of(std::uint32_t left, std::uint32_t right) {
  return std::uint64_t{left} << 32 | right;
}

std::size_t hash_of(MergeLearner::Pair pair) {
  pair *= 0x9E3779B97F4A7C15ULL;
  return pair ^ pair >> 32;
}

}  // namespace

MergeLearner::MergeLearner(std::vector<std::string> tokens)
    : tokens_(std::move(tokens)), table_(1 << 12), pairs_(1), pair_of_(1) {
  for (std::size_t id = 0; id < tokens_.size(); ++id) {
    ids_.emplace(tokens_[id], static_cast<std::uint32_t>(id));
    // Characters, not bytes: every byte that does not continue a character begins one.
    lengths_.push_back(static_cast<std::uint64_t>(
        std::count_if(tokens_[id].begin(), tokens_[id].end(), [](char c) {
          return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
        })));
  }
}

void MergeLearner::add_word(std::string_view bytes, std::uint64_t count) {
  static thread_local std::array<std::string, 256> alphabet;
  if (bytes.size() > 0xFFFFFFFF)
    fail(ErrorKind::data,
         "a word of the training text has ",
         bytes.size(),
         " bytes, at most 2^32-1");
  words_.push_back({.begin = symbols_.size(),
                    .length = static_cast<std::uint32_t>(bytes.size()),
                    .count = static_cast<std::int64_t>(count)});
  for (const char c : bytes) {
    std::string& token = alphabet[static_cast<unsigned char>(c)];
    if (token.empty()) token = to_byte_level(std::string_view(&c, 1));
    symbols_.push_back(ids_.at(token));
  }
}

MergeLearner::PairState& MergeLearner::state(Pair pair) {
  const std::size_t mask = table_.size() - 1;
  std::size_t at = hash_of(pair) & mask;
  while (table_[at].index != 0 && table_[at].pair != pair) at = (at + 1) & mask;
  if (table_[at].index == 0) {
    if (pairs_.size() * 2 > table_.size()) {
      grow_table();
      return state(pair);
    }
    table_[at] = {pair, static_cast<std::uint32_t>(pairs_.size())};
    pairs_.emplace_back();
    pair_of_.push_back(pair);
  }
  return pairs_[table_[at].index];
}

void MergeLearner::grow_table() {
  std::vector<PairSlot> old(table_.size() * 2);
  old.swap(table_);
  const std::size_t mask = table_.size() - 1;
  for (const PairSlot& slot : old) {
    if (slot.index == 0) continue;
    std::size_t at = hash_of(slot.pair) & mask;
    while (table_[at].index != 0) at = (at + 1) & mask;
    table_[at] = slot;
  }
}

void MergeLearner::change(Pair pair, std::int64_t by, std::uint32_t word) {
  PairState& found = state(pair);
  found.count += by;
  if (by < 0) return;
  if (found.words.empty()) fresh_.push_back(static_cast<std::uint32_t>(&found - pairs_.data()));
  if (found.words.empty() || found.words.back() != word)
    found.words.push_back(word);  // words come one after another
}

void MergeLearner::count_words() {
  for (std::uint32_t w = 0; w < words_.size(); ++w) {
    const std::uint32_t* symbols = symbols_.data() + words_[w].begin;
    for (std::uint32_t i = 0; i + 1 < words_[w].length; ++i)
      change(pair_of(symbols[i], symbols[i + 1]), words_[w].count, w);
  }
}

void MergeLearner::push_new_pairs() {
  for (const std::uint32_t index : fresh_) {
    PairState& found = pairs_[index];
    if (found.count > 0) {
      heap_.push_back({found.count, pair_of_[index], std::move(found.words)});
      std::push_heap(heap_.begin(), heap_.end());
    }
    found.words = {};
  }
  fresh_.clear();
}

std::uint32_t MergeLearner::token_of(Pair pair) {
  const std::uint64_t left = pair >> 32;
  const std::uint64_t right = pair & 0xFFFFFFFF;
  const auto [found, is_new] =
      ids_.emplace(tokens_[left] + tokens_[right], static_cast<std::uint32_t>(tokens_.size()));
  if (is_new) {
    tokens_.push_back(found->first);
    lengths_.push_back(lengths_[left] + lengths_[right]);
  }
  return found->second;  // an old id if the same string came about another way
}

void MergeLearner::merge_in(std::uint32_t word,
                            Pair pair,
                            std::uint32_t result,
                            std::uint64_t max_length) {
  const auto left = static_cast<std::uint32_t>(pair >> 32);
  const auto right = static_cast<std::uint32_t>(pair);
  Word& w = words_[word];
  std::uint32_t* const symbols = symbols_.data() + w.begin;
  std::uint32_t kept = 0;  // symbols[0, kept) are final
  for (std::uint32_t i = 0; i < w.length; ++i) {
    if (symbols[i] != left || i + 1 >= w.length || symbols[i + 1] != right) {
      symbols[kept++] = symbols[i];
      continue;
    }
    if (kept > 0) {
      const std::uint32_t before = symbols[kept - 1];
      change(pair_of(before, left), -w.count, word);
      if (lengths_[before] + lengths_[result] < max_length)
        change(pair_of(before, result), w.count, word);
    }
    if (i + 2 < w.length) {
      const std::uint32_t after = symbols[i + 2];
      change(pair_of(right, after), -w.count, word);
      if (lengths_[after] + lengths_[result] < max_length)
        change(pair_of(result, after), w.count, word);
    }
    symbols[kept++] = result;
    ++i;
  }
  w.length = kept;
}

void MergeLearner::learn(std::size_t vocab_size,
                         std::uint64_t min_frequency,
                         std::uint64_t max_length) {
  count_words();
  push_new_pairs();
  while (tokens_.size() < vocab_size && !heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    Candidate& top = heap_.back();
    // Counts in the heap may be old: such an entry goes back with the count of today.
    if (const std::int64_t count = state(top.pair).count; top.count != count) {
      top.count = count;
      std::push_heap(heap_.begin(), heap_.end());
      continue;
    }
    if (top.count < 1 || static_cast<std::uint64_t>(top.count) < min_frequency) break;
    const Pair pair = top.pair;
    const std::vector<std::uint32_t> words = std::move(top.words);
    heap_.pop_back();
    const std::uint32_t result = token_of(pair);
    merges_.push_back(pair);
    for (const std::uint32_t word : words) merge_in(word, pair, result, max_length);
    push_new_pairs();
  }
}

}  // namespace trireme
