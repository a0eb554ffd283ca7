#pragma once
#include "ops/cpu/rows.hpp"

/// The elementwise part of attention and the layout conversions between its matmuls.
namespace trireme::ops::kernels {
namespace {

/// The key rows that query columns query, query + 1, ... see, one column per lane.
class SeenBy {
 public:
  SeenBy(const ScoreTile& tile, std::int64_t query) {
    I end;
    __builtin_memcpy(&begin_, tile.seen_begin + query, sizeof(begin_));
    __builtin_memcpy(&end, tile.seen_end + query, sizeof(end));
    count_ = (U)(end > begin_ ? end - begin_ : I{});
    begin_ -= tile.first;
  }

  /// Returns all bits set in lanes that see the key.
  [[nodiscard]] I has(std::int64_t key) const {
    return (U)(static_cast<std::int32_t>(key) - begin_) < count_;
  }

 private:
  I begin_;
  U count_;
};

/// The key rows that every query of the tile sees; they need no mask.
class SeenByAll {
 public:
  explicit SeenByAll(const ScoreTile& tile) {
    std::int32_t begin = tile.seen_begin[0];
    std::int32_t end = tile.seen_end[0];
    for (std::int64_t q = 1; q < tile.queries; ++q) {
      begin = begin < tile.seen_begin[q] ? tile.seen_begin[q] : begin;
      end = end < tile.seen_end[q] ? end : tile.seen_end[q];
    }
    begin_ = begin - tile.first;
    count_ = end > begin ? static_cast<std::uint64_t>(end - begin) : 0;
  }

  [[nodiscard]] bool has(std::int64_t key) const {
    return static_cast<std::uint64_t>(key - begin_) < count_;
  }

 private:
  std::int64_t begin_;
  std::uint64_t count_;
};

/// Stores two rows as one row of pairs (even row in the low half), the order of bf16 dot products.
inline void store_pairs(std::uint16_t* p, F even, F odd) {
  const U low = __builtin_convertvector(narrow(even), U);
  const U pairs = low | (__builtin_convertvector(narrow(odd), U) << 16);
  __builtin_memcpy(p, &pairs, sizeof(pairs));
}

/// Stores weights of two keys for the next product: bf16 in pairs, or two rows of fp32.
inline void put_weights(std::uint16_t* rows, const ScoreTile& /*tile*/, std::int64_t q, F even,
                        F odd) {
  store_pairs(rows + 2 * q, even, odd);
}

inline void put_weights(float* rows, const ScoreTile& tile, std::int64_t q, F even, F odd) {
  store(rows + q, even);
  store(rows + tile.queries + q, odd);
}

/// Computes 2^x for weights that are stored as W.
template <class W>
inline F exp2_for(F x) {
  return sizeof(W) == sizeof(float) ? exp2_lanes(x) : exp2_rough_lanes(x);
}

/// Growth of a query's maximum (log2 units) up to which its old maximum stays the base of the
/// weights. Weights are then at most 2^8, relatively exact, and the sums need no scaling.
constexpr float kSlack = 8.0F;

template <class W>
void softmax_tile(const ScoreTile& tile, const float* scores, float* maximum, float* total,
                  W* weights, float* out, std::int64_t width) {
  const float scale = tile.scale * kLog2e;
  const F lowest = splat(-__builtin_huge_valf());
  const SeenByAll all(tile);
  for (std::int64_t q = 0; q < tile.queries; q += kLanes) {
    const SeenBy seen(tile, q);
    const auto score_of = [&](std::int64_t key) {
      const F score = load(scores + key * tile.queries + q) * scale;
      return all.has(key) ? score : (seen.has(key) != 0 ? score : lowest);
    };
    F best = lowest;
    for (std::int64_t key = 0; key < tile.keys; ++key) best = larger(score_of(key), best);
    const F before = load(maximum + q);
    const bool grows = max_lanes(best > before + kSlack ? splat(1.0F) : F{}) > 0;
    const F now = grows ? larger(best, before) : before;
    // Without keys so far, the maximum stays -inf; the weights must be 0, not NaN.
    const F base = now == lowest ? F{} : now;
    const F shrink = grows ? exp2_lanes(before - base) : splat(1.0F);
    F sum = load(total + q) * shrink;
    for (std::int64_t key = 0; key < tile.keys; key += 2) {
      const F even = exp2_for<W>(score_of(key) - base);
      const F odd = exp2_for<W>(score_of(key + 1) - base);
      sum += even + odd;
      put_weights(weights + key * tile.queries, tile, q, even, odd);
    }
    store(maximum + q, now);
    store(total + q, sum);
    if (!grows) continue;
    for (std::int64_t d = 0; d < width; ++d) {
      store(out + d * tile.queries + q, load(out + d * tile.queries + q) * shrink);
    }
  }
}

template <class W>
void softmax_tile_backward(const ScoreTile& tile, const float* scores, const float* grad_weights,
                           const float* lse, const float* along, W* weights, W* grad_scores,
                           std::uint16_t* grad_scores_pairs) {
  const float scale = tile.scale * kLog2e;
  const SeenByAll all(tile);
  for (std::int64_t q = 0; q < tile.queries; q += kLanes) {
    const SeenBy seen(tile, q);
    const F base = load(lse + q) * kLog2e;
    const F subtract = load(along + q);
    for (std::int64_t key = 0; key < tile.keys; key += 2) {
      F grads[2];
      for (std::int64_t odd = 0; odd < 2; ++odd) {
        const std::int64_t at = (key + odd) * tile.queries + q;
        F weight = exp2_for<W>(load(scores + at) * scale - base);
        if (!all.has(key + odd)) weight = seen.has(key + odd) != 0 ? weight : F{};
        grads[odd] = weight * (load(grad_weights + at) - subtract) * tile.scale;
        store(weights + at, weight);
        store(grad_scores + at, grads[odd]);
      }
      if (grad_scores_pairs != nullptr)
        store_pairs(grad_scores_pairs + key * tile.queries + 2 * q, grads[0], grads[1]);
    }
  }
}

void pack_pairs(const std::uint16_t* rows, std::int64_t stride, std::int64_t num_rows,
                std::int64_t width, std::uint32_t* pairs) {
  for (std::int64_t r = 0; r < num_rows; r += 2) {
    for (std::int64_t i = 0; i < width; i += kLanes) {
      Half even;
      Half odd;
      __builtin_memcpy(&even, rows + r * stride + i, sizeof(even));
      __builtin_memcpy(&odd, rows + (r + 1) * stride + i, sizeof(odd));
      const U both = __builtin_convertvector(even, U) | (__builtin_convertvector(odd, U) << 16);
      __builtin_memcpy(pairs + r / 2 * width + i, &both, sizeof(both));
    }
  }
}

/// One of four stages of a transpose. Between vectors `distance` apart, exchanges the lanes with an
/// index that differs in that bit.
template <int distance>
inline void exchange(U (&v)[16]) {
  U low_mask;
  U high_mask;
  for (std::uint32_t lane = 0; lane < 16; ++lane) {
    const bool upper = (lane & distance) != 0;
    low_mask[lane] = upper ? 16 + (lane - distance) : lane;
    high_mask[lane] = upper ? 16 + lane : lane + distance;
  }
  for (int i = 0; i < 16; ++i) {
    if ((i & distance) != 0) continue;
    const U a = v[i];
    const U b = v[i + distance];
    v[i] = __builtin_shuffle(a, b, low_mask);
    v[i + distance] = __builtin_shuffle(a, b, high_mask);
  }
}

void transpose(const std::uint32_t* in, std::int64_t in_stride, std::uint32_t* out,
               std::int64_t out_stride, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; r += 16) {
    for (std::int64_t c = 0; c < columns; c += 16) {
      U v[16];
      for (int i = 0; i < 16; ++i) __builtin_memcpy(&v[i], in + (r + i) * in_stride + c, sizeof(U));
      exchange<1>(v);
      exchange<2>(v);
      exchange<4>(v);
      exchange<8>(v);
      for (int i = 0; i < 16; ++i)
        __builtin_memcpy(out + (c + i) * out_stride + r, &v[i], sizeof(U));
    }
  }
}

void round_rows(const float* in, std::int64_t in_stride, const float* factors, std::uint16_t* out,
                std::int64_t out_stride, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float factor = factors == nullptr ? 1.0F : factors[r];
    for_vectors(width, [&](std::int64_t i, std::int64_t n) {
      put(out + r * out_stride, i, n, get(in + r * in_stride, i, n) * factor);
    });
  }
}

template <class T>
void row_products(const T* a, std::int64_t a_stride, const T* b, std::int64_t b_stride,
                  float* products, std::int64_t rows, std::int64_t width) {
  for (std::int64_t r = 0; r < rows; ++r) {
    F sum{};
    for_vectors(width, [&](std::int64_t i, std::int64_t n) {
      sum += get(a + r * a_stride, i, n) * get(b + r * b_stride, i, n);
    });
    products[r] = sum_lanes(sum);
  }
}

}  // namespace
}  // namespace trireme::ops::kernels
