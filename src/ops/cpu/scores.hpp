#pragma once
#include "ops/cpu/rows.hpp"

/// The elementwise part of attention, between its matmuls. Included once by
/// every instruction set's file.
namespace trireme::ops::kernels {
namespace {

/// The key rows that query columns query, query + 1, .. see, one column a lane.
class SeenBy {
 public:
  SeenBy(const ScoreTile& tile, std::int64_t query) {
    const I lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const I column = lane + static_cast<std::int32_t>(query);
    const I begin_moves = column & -std::int32_t{tile.begin_moves};
    const I end_moves = column & -std::int32_t{tile.end_moves};
    begin_ = begin_moves + static_cast<std::int32_t>(tile.seen.begin);
    const I count = end_moves + static_cast<std::int32_t>(tile.seen.end) - begin_;
    count_ = (U)(count > 0 ? count : I{});
  }

  /// Returns all bits of a lane, or none.
  [[nodiscard]] I has(std::int64_t key) const {
    return (U)(static_cast<std::int32_t>(key) - begin_) < count_;
  }

 private:
  I begin_;
  U count_;
};

/// Key rows that every query of the tile sees, so that they need no mask.
class SeenByAll {
 public:
  explicit SeenByAll(const ScoreTile& tile)
      : begin_(tile.seen.begin + (tile.begin_moves ? tile.queries - 1 : 0)),
        count_(tile.seen.end > begin_ ? static_cast<std::uint64_t>(tile.seen.end - begin_) : 0) {}

  [[nodiscard]] bool has(std::int64_t key) const {
    return static_cast<std::uint64_t>(key - begin_) < count_;
  }

 private:
  std::int64_t begin_;
  std::uint64_t count_;
};

/// Two rows as one row of pairs (even row in the low half): the order that bf16 dot products read.
inline void store_pairs(std::uint16_t* p, F even, F odd) {
  const U low = __builtin_convertvector(narrow(even), U);
  const U pairs = low | (__builtin_convertvector(narrow(odd), U) << 16);
  __builtin_memcpy(p, &pairs, sizeof(pairs));
}

/// Growth of a query's maximum (log2 units) up to which the old one stays the base of its weights:
/// they are then at most 2^8, exact in relative terms, and the sums so far need no scaling.
constexpr float kSlack = 8.0F;

void softmax_tile(const ScoreTile& tile, const float* scores, float* maximum, float* total,
                  std::uint16_t* weights_pairs, float* out, std::int64_t width) {
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
    // A query that has seen no key yet keeps -inf: its weights must be 0, not NaN.
    const F base = now == lowest ? F{} : now;
    const F shrink = grows ? exp2_lanes(before - base) : splat(1.0F);
    F sum = load(total + q) * shrink;
    for (std::int64_t key = 0; key < tile.keys; key += 2) {
      const F even = exp2_rough_lanes(score_of(key) - base);
      const F odd = exp2_rough_lanes(score_of(key + 1) - base);
      sum += even + odd;
      store_pairs(weights_pairs + key * tile.queries + 2 * q, even, odd);
    }
    store(maximum + q, now);
    store(total + q, sum);
    if (!grows) continue;
    for (std::int64_t d = 0; d < width; ++d) {
      store(out + d * tile.queries + q, load(out + d * tile.queries + q) * shrink);
    }
  }
}

void softmax_tile_backward(const ScoreTile& tile, const float* scores, const float* grad_weights,
                           const float* lse, const float* along, std::uint16_t* weights,
                           std::uint16_t* grad_scores, std::uint16_t* grad_scores_pairs) {
  const float scale = tile.scale * kLog2e;
  const SeenByAll all(tile);
  for (std::int64_t key = 0; key < tile.keys; key += 2) {
    const bool masked = !all.has(key) || !all.has(key + 1);
    for (std::int64_t q = 0; q < tile.queries; q += kLanes) {
      const F base = load(lse + q) * kLog2e;
      const F subtract = load(along + q);
      F grads[2];
      for (std::int64_t odd = 0; odd < 2; ++odd) {
        const std::int64_t at = (key + odd) * tile.queries + q;
        F weight = exp2_rough_lanes(load(scores + at) * scale - base);
        if (masked) weight = SeenBy(tile, q).has(key + odd) != 0 ? weight : F{};
        grads[odd] = weight * (load(grad_weights + at) - subtract) * tile.scale;
        store(weights + at, weight);
        store(grad_scores + at, grads[odd]);
      }
      store_pairs(grad_scores_pairs + key * tile.queries + 2 * q, grads[0], grads[1]);
    }
  }
}

}  // namespace
}  // namespace trireme::ops::kernels
