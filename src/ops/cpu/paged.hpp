#pragma once
#include "ops/cpu/linear.hpp"
#include "ops/cpu/scores.hpp"

/// Attention over keys and values in blocks. A query's result is formed by the same operations in the
/// same order whatever other queries there are. Included once by every instruction set's file.
namespace trireme::ops::kernels {
namespace {

static_assert(kBlockTokens == kLanes, "the tokens of a block are the lanes of a vector");

/// Registers that the 16 tokens of a block, or 16 elements of a head, take.
constexpr int kParts = kLanes / kWide;
/// Queries of one pass over a block.
constexpr int kPassQueries = 6;

/// One query head of one token.
struct QueryState {
  float* query;   // [width], times scale and log2(e)
  float* out;     // [width], sums so far
  float* scores;  // [16], then weights
  F total;        // of weights, lane by lane
  float base;     // of the exponent
  std::int64_t position;
};

inline float max_of_lanes(F x) {
  using H4 = float __attribute__((vector_size(16)));
  const V8 low = __builtin_shufflevector(x, x, 0, 1, 2, 3, 4, 5, 6, 7);
  const V8 high = __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15);
  const V8 eight = low > high ? low : high;
  const H4 a = __builtin_shufflevector(eight, eight, 0, 1, 2, 3);
  const H4 b = __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  const H4 four = a > b ? a : b;
  const float c = four[0] > four[1] ? four[0] : four[1];
  const float d = four[2] > four[3] ? four[2] : four[3];
  return c > d ? c : d;
}

/// Sums that grow side by side: with one query each would wait for the one before.
constexpr int kSideBySide = 2 / kParts;

/// scores = keys of a block [width, 16] with kQueries queries; width is a multiple of 16. Fetches `next`,
/// as large as keys.
template <class T, int kQueries>
inline void score_pass(QueryState* queries, const T* keys, const T* next, std::int64_t width) {
  V sums[kSideBySide][kQueries][kParts] = {};
  for (std::int64_t first = 0; first < width; first += kSideBySide) {
    for (int side = 0; side < kSideBySide; ++side) {
      const std::int64_t d = first + side;
      __builtin_prefetch(next + d * kBlockTokens);
      for (int part = 0; part < kParts; ++part) {
        const V key = load_wide(keys + d * kBlockTokens + part * kWide);
        for (int q = 0; q < kQueries; ++q) sums[side][q][part] += queries[q].query[d] * key;
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

/// Scores become weights. A query whose largest score has grown by more than kSlack takes it as the
/// new base of its exponents: otherwise weights are at most 2^kSlack, exact in relative terms.
inline void weigh(QueryState& q, std::int64_t first_key, std::int64_t width) {
  const I lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const F lowest = splat(-__builtin_huge_valf());
  F scores = load(q.scores);
  const std::int64_t seen = q.position + 1 - first_key;
  if (seen < kBlockTokens) scores = lane < static_cast<std::int32_t>(seen) ? scores : lowest;
  const float best = max_of_lanes(scores);
  if (!(best <= q.base + kSlack)) {  // NaN too: it then shows in the result
    const F shrink = exp2_lanes(splat(q.base - best));
    q.base = best;
    q.total *= shrink;
    for (std::int64_t d = 0; d < width; d += kLanes) store(q.out + d, load(q.out + d) * shrink);
  }
  const F weights = exp2_lanes(scores - q.base);
  q.total += weights;
  store(q.scores, weights);
}

/// Elements [d, d + kCount kWide) of out += weights times values of a block, of which `tokens` are there.
template <class T, int kQueries, int kCount>
inline void value_columns(QueryState* queries, const T* values, const T* next, std::int64_t tokens,
                          std::int64_t width, std::int64_t d) {
  V sums[kQueries][kCount];
  for (int q = 0; q < kQueries; ++q) {
    for (int i = 0; i < kCount; ++i) sums[q][i] = load_wide(queries[q].out + d + i * kWide);
  }
  for (std::int64_t token = 0; token < tokens; ++token) {
    const std::int64_t at = token * width + d;
    for (int i = 0; i < kCount; ++i) {
      __builtin_prefetch(next + at + i * kWide);
      const V value = load_wide(values + at + i * kWide);
      for (int q = 0; q < kQueries; ++q) sums[q][i] += queries[q].scores[token] * value;
    }
  }
  for (int q = 0; q < kQueries; ++q) {
    for (int i = 0; i < kCount; ++i) store_wide(queries[q].out + d + i * kWide, sums[q][i]);
  }
}

/// out += weights times values of a block [16, width]. Fetches `next`, as large as values.
template <class T, int kQueries>
inline void value_pass(QueryState* queries, const T* values, const T* next, std::int64_t tokens,
                       std::int64_t width) {
  std::int64_t d = 0;
  for (; d + 2 * kWide <= width; d += 2 * kWide)
    value_columns<T, kQueries, 2>(queries, values, next, tokens, width, d);
  for (; d < width; d += kWide)
    value_columns<T, kQueries, 1>(queries, values, next, tokens, width, d);
}

/// Keys and values of one head in one block.
template <class T>
struct BlockOfHead {
  const T* keys;
  const T* values;
};

template <class T, int kQueries>
inline void block_pass(QueryState* queries, std::int64_t count, BlockOfHead<T> block,
                       BlockOfHead<T> next, std::int64_t first_key, std::int64_t width) {
  if constexpr (kQueries > 0) {
    if (count < kQueries)
      return block_pass<T, kQueries - 1>(queries, count, block, next, first_key, width);
    score_pass<T, kQueries>(queries, block.keys, next.keys, width);
    for (int q = 0; q < kQueries; ++q) weigh(queries[q], first_key, width);
    // Weights of tokens that a query does not see are 0; those that none sees are not there.
    const std::int64_t last_seen = queries[kQueries - 1].position + 1 - first_key;
    value_pass<T, kQueries>(queries, block.values, next.values,
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
         F{},     -__builtin_huge_valf(), a.before + row};
    scratch += 2 * a.width + kBlockTokens;
    const T* from = typed<T>(a.q) + row * a.q_row_stride + head * a.q_head_stride;
    for (std::int64_t d = 0; d < a.width; d += kLanes) {
      store(q.query + d, load(from + d) * (a.scale * kLog2e));
      store(q.out + d, F{});
    }
  }
  const auto block_at = [&a](std::int64_t b) {
    const std::int64_t at =
        (a.blocks[b] * a.kv_heads + a.kv_head) * std::int64_t{kBlockTokens} * a.width;
    return BlockOfHead<T>{typed<T>(a.keys) + at, typed<T>(a.values) + at};
  };
  const std::int64_t last = queries[count - 1].position / kBlockTokens;
  std::int64_t first = 0;  // the first query that sees anything of the block
  BlockOfHead<T> block = block_at(0);
  for (std::int64_t b = 0; b <= last; ++b) {
    const BlockOfHead<T> next = block_at(b < last ? b + 1 : b);
    while (queries[first].position < b * kBlockTokens) ++first;
    for (std::int64_t i = first; i < count; i += kPassQueries)
      block_pass<T, kPassQueries>(queries + i, count - i, block, i == first ? next : block,
                                  b * kBlockTokens, a.width);
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

/// Keys lie in a block as [width, 16], values as [16, width].
template <class T>
void paged_store_typed(const PagedStore& a) {
  for (std::int64_t row = a.first_row; row < a.last_row; ++row) {
    const std::int64_t position = a.before + row;
    const std::int64_t slot = position % kBlockTokens;
    for (std::int64_t head = 0; head < a.kv_heads; ++head) {
      const std::int64_t at =
          (a.blocks[position / kBlockTokens] * a.kv_heads + head) * kBlockTokens * a.width;
      const T* key = typed<T>(a.k) + row * a.k_row_stride + head * a.k_head_stride;
      const T* value = typed<T>(a.v) + row * a.v_row_stride + head * a.v_head_stride;
      T* keys = typed<T>(a.keys) + at + slot;
      for (std::int64_t d = 0; d < a.width; ++d) keys[d * kBlockTokens] = key[d];
      __builtin_memcpy(typed<T>(a.values) + at + slot * a.width, value,
                       static_cast<std::size_t>(a.width) * sizeof(T));
    }
  }
}

}  // namespace
}  // namespace trireme::ops::kernels
