#pragma once
#include "ops/cpu/linear.hpp"
#include "ops/cpu/scores.hpp"

/// Attention over paged keys and values. The result of a query is computed by the same operations
/// in the same order, whatever other queries there are. Included once per instruction set.
namespace trireme::ops::kernels {
namespace {

static_assert(kBlockTokens == kLanes, "the tokens of a block are the lanes of a vector");

constexpr int kPassQueries = 6;

/// State of one query head of one token.
struct QueryState {
  float* query;   // [width], in the dtype of Factor
  float* out;     // [width], sums so far
  float* scores;  // [16]; later the weights as Factor
  F total;        // sum of weights, by lane
  float base;     // base of the exponents
  KeyInterval seen;
};

inline float max_of_lanes(F x) {
  const V8 low = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7);
  const V8 high = __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  const V8 eight = low > high ? low : high;
  const V4 a = __builtin_shufflevector(eight, eight, 0, 1, 2, 3);
  const V4 b = __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  const V4 four = a > b ? a : b;
  const float c = four[0] > four[1] ? four[0] : four[1];
  const float d = four[2] > four[3] ? four[2] : four[3];
  return c > d ? c : d;
}

/// Numbers per word of a block: two for bf16 (one token in keys, two tokens in values), else one.
template <class T>
constexpr std::int64_t kInBlockWord = in_block_word(sizeof(T));

/// Type of the factors of a block's numbers (queries and weights): bf16 only if the machine
/// multiplies pairs of it, else fp32.
template <class T>
struct FactorOf {
  using Type = float;
};
#ifdef __AVX512BF16__
template <>
struct FactorOf<Bf16> {
  using Type = Bf16;
};
#endif
template <class T>
using Factor = typename FactorOf<T>::Type;

inline V load_words(const float* p) {
  return load_wide(p);
}

inline WideU load_words(const Bf16* p) {
  WideU words;
  __builtin_memcpy(&words, p, sizeof(words));
  return words;
}

template <class T>
using Words = decltype(load_words(static_cast<const T*>(nullptr)));

/// Returns the first token's numbers of words of values; the second token's may be garbage.
inline WideU first_of(WideU words) {
  return words & 0xffffU;
}

inline V first_of(V words) {
  return words;
}

/// Returns sum + each word's numbers times the factors.
inline V with_products(V sum, const float* factors, V words) {
  return sum + factors[0] * words;
}

#ifdef __AVX512BF16__
inline V with_products(V sum, const Bf16* factors, WideU words) {
  int pair = 0;
  __builtin_memcpy(&pair, factors, sizeof(pair));
  return (V)_mm512_dpbf16_ps((__m512)sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)words);
}
#else
inline V with_products(V sum, const float* factors, WideU words) {
  sum += factors[0] * (V)(words << 16);
  return sum + factors[1] * (V)(words & 0xffff0000U);
}
#endif

/// Number of independent sums, so that additions of one query do not wait for each other.
constexpr int kSideBySide = 2 / kParts;

/// Computes the scores of a block's keys with kQueries queries; width is a multiple of 16. With
/// kFetch, prefetches `next`, which is as large as keys.
template <class T, int kQueries, bool kFetch>
inline void score_pass(QueryState* queries, const T* keys, const T* next, std::int64_t width) {
  constexpr std::int64_t kWord = kInBlockWord<T>;
  V sums[kSideBySide][kQueries][kParts] = {};
  for (std::int64_t first = 0; first < width; first += kSideBySide * kWord) {
    for (int side = 0; side < kSideBySide; ++side) {
      const std::int64_t d = first + side * kWord;
      if constexpr (kFetch) __builtin_prefetch(next + d * kBlockTokens);
      Words<T> words[kParts];
      for (int part = 0; part < kParts; ++part)
        words[part] = load_words(keys + d * kBlockTokens + part * kWide * kWord);
      // One factor at a time, so that sums, words and the factor fit into registers.
      for (int q = 0; q < kQueries; ++q) {
        const Factor<T>* factors = typed<Factor<T>>(queries[q].query) + d;
        for (int part = 0; part < kParts; ++part)
          sums[side][q][part] = with_products(sums[side][q][part], factors, words[part]);
      }
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int part = 0; part < kParts; ++part) {
      for (int side = 1; side < kSideBySide; ++side) sums[0][q][part] += sums[side][q][part];
      store_wide(queries[q].scores + part * kWide, sums[0][q][part]);
    }
  }
}

/// Converts scores to weights. If the largest score of a query has grown by more than kSlack, it
/// becomes the new base of the exponents. Weights therefore stay at most 2^kSlack.
template <class T>
inline void weigh(QueryState& q, std::int64_t first_key, std::int64_t width, float scale) {
  const I lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const F lowest = splat(-__builtin_huge_valf());
  F scores = load(q.scores) * scale;
  const std::int64_t hidden = q.seen.begin - first_key;
  const std::int64_t end = q.seen.end - first_key;
  if (hidden > 0) scores = lane >= static_cast<std::int32_t>(hidden) ? scores : lowest;
  if (end < kBlockTokens) scores = lane < static_cast<std::int32_t>(end) ? scores : lowest;
  const float best = max_of_lanes(scores);
  if (!(best <= q.base + kSlack)) {  // also true for NaN, which then shows in the result
    const F shrink = exp2_lanes(splat(q.base - best));
    q.base = best;
    q.total *= shrink;
    for (std::int64_t d = 0; d < width; d += kLanes) store(q.out + d, load(q.out + d) * shrink);
  }
  const F weights = exp2_lanes(scores - q.base);
  q.total += weights;
  store(typed<Factor<T>>(q.scores), weights);
}

/// Adds weights times `tokens` values of a block to elements [d, d + kCount kWide) of out.
template <class T, int kQueries, bool kFetch, int kCount>
inline void value_columns(QueryState* queries, const T* values, const T* next, std::int64_t tokens,
                          std::int64_t width, std::int64_t d) {
  constexpr std::int64_t kWord = kInBlockWord<T>;
  V sums[kQueries][kCount];
  for (int q = 0; q < kQueries; ++q) {
    for (int i = 0; i < kCount; ++i) sums[q][i] = load_wide(queries[q].out + d + i * kWide);
  }
  const auto add = [&](std::int64_t token, auto words_at) {
    Words<T> words[kCount];
    for (int i = 0; i < kCount; ++i) words[i] = words_at(token * width + (d + i * kWide) * kWord);
    for (int q = 0; q < kQueries; ++q) {
      const Factor<T>* factors = typed<Factor<T>>(queries[q].scores) + token;
      for (int i = 0; i < kCount; ++i) sums[q][i] = with_products(sums[q][i], factors, words[i]);
    }
  };
  std::int64_t token = 0;
  for (; token + kWord <= tokens; token += kWord) {
    add(token, [&](std::int64_t at) {
      if constexpr (kFetch) __builtin_prefetch(next + at);
      return load_words(values + at);
    });
  }
  if (token < tokens)
    add(token, [&](std::int64_t at) { return first_of(load_words(values + at)); });
  for (int q = 0; q < kQueries; ++q) {
    for (int i = 0; i < kCount; ++i) store_wide(queries[q].out + d + i * kWide, sums[q][i]);
  }
}

/// Adds weights times values of a block to out. With kFetch, prefetches `next`, as large as values.
template <class T, int kQueries, bool kFetch>
inline void value_pass(QueryState* queries, const T* values, const T* next, std::int64_t tokens,
                       std::int64_t width) {
  std::int64_t d = 0;
  if constexpr (kQueries * kParts <= 3) {  // enough independent sums
    for (; d + 4 * kWide <= width; d += 4 * kWide)
      value_columns<T, kQueries, kFetch, 4>(queries, values, next, tokens, width, d);
  }
  for (; d + 2 * kWide <= width; d += 2 * kWide)
    value_columns<T, kQueries, kFetch, 2>(queries, values, next, tokens, width, d);
  for (; d < width; d += kWide)
    value_columns<T, kQueries, kFetch, 1>(queries, values, next, tokens, width, d);
}

template <class T>
struct BlockOfHead {
  const T* keys;
  const T* values;
};

template <class T, int kQueries, bool kFetch>
inline void block_pass(QueryState* queries, std::int64_t count, BlockOfHead<T> block,
                       BlockOfHead<T> next, std::int64_t first_key, std::int64_t width,
                       float scale) {
  if constexpr (kQueries > 0) {
    if (count < kQueries)
      return block_pass<T, kQueries - 1, kFetch>(queries, count, block, next, first_key, width,
                                                 scale);
    score_pass<T, kQueries, kFetch>(queries, block.keys, next.keys, width);
    for (int q = 0; q < kQueries; ++q) weigh<T>(queries[q], first_key, width, scale);
    // Tokens that a query does not see have weight 0; tokens that no query sees are skipped.
    const std::int64_t last_seen = queries[kQueries - 1].seen.end - first_key;
    value_pass<T, kQueries, kFetch>(queries, block.values, next.values,
                                    last_seen < kBlockTokens ? last_seen : kBlockTokens, width);
  }
}

template <class T>
void paged_attention_typed(const PagedAttention& a) {
  const std::int64_t count = (a.last_row - a.first_row) * a.group;
  QueryState queries[kMaxPagedQueries] = {};
  float* scratch = a.scratch;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = a.first_row + i / a.group;
    const std::int64_t head = a.kv_head * a.group + i % a.group;
    QueryState& q = queries[i];
    q = {scratch, scratch + a.width,      scratch + 2 * a.width,
         F{},     -__builtin_huge_valf(), a.seen[row]};
    scratch += 2 * a.width + kBlockTokens;
    const T* from = typed<T>(a.q) + row * a.q_row_stride + head * a.q_head_stride;
    for (std::int64_t d = 0; d < a.width; d += kLanes) {
      store(typed<Factor<T>>(q.query) + d, load(from + d));
      store(q.out + d, F{});
    }
  }
  const auto block_at = [&a](std::int64_t b) {
    const std::int64_t at =
        (a.kv_head * a.num_blocks + a.blocks[b]) * std::int64_t{kBlockTokens} * a.width;
    return BlockOfHead<T>{typed<T>(a.keys) + at, typed<T>(a.values) + at};
  };
  const float scale = a.scale * kLog2e;
  const std::int64_t last = (queries[count - 1].seen.end - 1) / kBlockTokens;
  std::int64_t b = queries[0].seen.begin / kBlockTokens;
  std::int64_t first = 0;   // first query that sees a token of the block
  std::int64_t behind = 0;  // first query that sees only later blocks
  BlockOfHead<T> block = block_at(b);
  for (; b <= last; ++b) {
    const BlockOfHead<T> next = block_at(b < last ? b + 1 : b);
    const bool fetch = kFetchInOrder || next.keys != block.keys + kBlockTokens * a.width;
    while (queries[first].seen.end <= b * kBlockTokens) ++first;
    while (behind < count && queries[behind].seen.begin < (b + 1) * kBlockTokens) ++behind;
    for (std::int64_t i = first; i < behind; i += kPassQueries) {
      if (i == first && fetch) {
        block_pass<T, kPassQueries, true>(queries + i, behind - i, block, next, b * kBlockTokens,
                                          a.width, scale);
      } else {
        block_pass<T, kPassQueries, false>(queries + i, behind - i, block, next, b * kBlockTokens,
                                           a.width, scale);
      }
    }
    block = next;
  }
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t row = a.first_row + i / a.group;
    const std::int64_t head = a.kv_head * a.group + i % a.group;
    T* out = typed<T>(a.out) + row * a.out_row_stride + head * a.width;
    const float factor = 1.0F / sum_lanes(queries[i].total);
    for (std::int64_t d = 0; d < a.width; d += kLanes)
      store(out + d, load(queries[i].out + d) * factor);
  }
}

/// Stores keys as [width, 16], values as [16, width]; bf16: [width / 2, 16, 2] and [8, width, 2].
template <class T>
void paged_store_typed(const PagedStore& a) {
  constexpr std::int64_t kWord = kInBlockWord<T>;
  for (std::int64_t row = a.first_row; row < a.last_row; ++row) {
    const std::int64_t position = a.before + row;
    const std::int64_t slot = position % kBlockTokens;
    for (std::int64_t head = 0; head < a.kv_heads; ++head) {
      const std::int64_t at =
          (head * a.num_blocks + a.blocks[position / kBlockTokens]) * kBlockTokens * a.width;
      const T* key = typed<T>(a.k) + row * a.k_row_stride + head * a.k_head_stride;
      const T* value = typed<T>(a.v) + row * a.v_row_stride + head * a.v_head_stride;
      T* keys = typed<T>(a.keys) + at + slot * kWord;
      T* values = typed<T>(a.values) + at + slot / kWord * kWord * a.width + slot % kWord;
      for (std::int64_t d = 0; d < a.width; ++d) {
        keys[d / kWord * kWord * kBlockTokens + d % kWord] = key[d];
        values[d * kWord] = value[d];
      }
    }
  }
}

}  // namespace
}  // namespace trireme::ops::kernels
