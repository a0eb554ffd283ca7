#pragma once
#include "ops/cpu/rows.hpp"

/// Per-head norm with rotation, and dropout. Included once per instruction set.
namespace trireme::ops::kernels {
namespace {

inline std::int64_t head_offset(const HeadStrides& s, std::int64_t b, std::int64_t t,
                                std::int64_t h) {
  return b * s.batch + t * s.token + h * s.head;
}

template <class T>
inline float head_rstd(const T* x, std::int64_t width, float eps) {
  F squares{};
  for_vectors(width, [&](std::int64_t i, std::int64_t n) {
    const F value = get(x, i, n);
    squares += value * value;
  });
  return 1.0F / __builtin_sqrtf(sum_lanes(squares) / static_cast<float>(width) + eps);
}

template <class T>
void heads_forward_typed(const Heads& a) {
  const std::int64_t half = a.width / 2;
  const T* weight = typed<T>(a.weight);
  for (std::int64_t token = a.first_token; token < a.last_token; ++token) {
    const std::int64_t b = token / a.length;
    const std::int64_t t = token % a.length;
    const float* cos = a.cos + a.positions[token] * half;
    const float* sin = a.sin + a.positions[token] * half;
    for (std::int64_t h = 0; h < a.num_heads; ++h) {
      const T* x = typed<T>(a.x) + head_offset(a.x_strides, b, t, h);
      T* out = typed<T>(a.out) + head_offset(a.out_strides, b, t, h);
      const float rstd = weight == nullptr ? 1.0F : head_rstd(x, a.width, a.eps);
      for_vectors(half, [&](std::int64_t i, std::int64_t n) {
        F first = get(x, i, n) * rstd;
        F second = get(x, half + i, n) * rstd;
        if (weight != nullptr) {
          first *= get(weight, i, n);
          second *= get(weight, half + i, n);
        }
        const F c = get(cos, i, n);
        const F s = get(sin, i, n);
        put(out, i, n, first * c - second * s);
        put(out, half + i, n, second * c + first * s);
      });
    }
  }
}

template <class T>
void heads_backward_typed(const Heads& a) {
  const std::int64_t half = a.width / 2;
  const T* weight = typed<T>(a.weight);
  float turned[kMaxHeadWidth];  // gradient with the rotation undone
  for (std::int64_t token = a.first_token; token < a.last_token; ++token) {
    const std::int64_t b = token / a.length;
    const std::int64_t t = token % a.length;
    const float* cos = a.cos + a.positions[token] * half;
    const float* sin = a.sin + a.positions[token] * half;
    for (std::int64_t h = 0; h < a.num_heads; ++h) {
      const T* grad = typed<T>(a.grad) + head_offset(a.grad_strides, b, t, h);
      T* out = typed<T>(a.out) + head_offset(a.out_strides, b, t, h);
      for_vectors(half, [&](std::int64_t i, std::int64_t n) {
        const F c = get(cos, i, n);
        const F s = get(sin, i, n);
        const F first = get(grad, i, n);
        const F second = get(grad, half + i, n);
        put(turned, i, n, first * c + second * s);
        put(turned, half + i, n, second * c - first * s);
      });
      if (weight == nullptr) {
        for_vectors(a.width, [&](std::int64_t i, std::int64_t n) {
          put(out, i, n, get<float>(turned, i, n));
        });
        continue;
      }
      const T* x = typed<T>(a.x) + head_offset(a.x_strides, b, t, h);
      const float rstd = head_rstd(x, a.width, a.eps);
      F products{};
      for_vectors(a.width, [&](std::int64_t i, std::int64_t n) {
        products += get<float>(turned, i, n) * get(weight, i, n) * get(x, i, n);
      });
      const float along = sum_lanes(products) * rstd / static_cast<float>(a.width);
      for_vectors(a.width, [&](std::int64_t i, std::int64_t n) {
        const F incoming = get<float>(turned, i, n);
        const F normed = get(x, i, n) * rstd;
        put(out, i, n, (incoming * get(weight, i, n) - normed * along) * rstd);
        put(a.grad_weight, i, n, get<float>(a.grad_weight, i, n) + incoming * normed);
      });
    }
  }
}

inline void philox_round(U (&c)[4], std::uint32_t key0, std::uint32_t key1) {
  const Wide product0 = __builtin_convertvector(c[0], Wide) * 0xD2511F53ULL;
  const Wide product1 = __builtin_convertvector(c[2], Wide) * 0xCD9E8D57ULL;
  const U high0 = __builtin_convertvector(product0 >> 32, U);
  const U high1 = __builtin_convertvector(product1 >> 32, U);
  c[0] = high1 ^ c[1] ^ key0;
  c[1] = __builtin_convertvector(product1, U);
  c[2] = high0 ^ c[3] ^ key1;
  c[3] = __builtin_convertvector(product0, U);
}

/// Computes the words of 16 consecutive counters, in feature order.
inline void philox_words(std::uint64_t key, std::uint32_t first_counter, std::uint32_t position,
                         std::uint64_t sample, std::uint32_t* words) {
  const U index = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  U c[4] = {index + first_counter, U{} + position, U{} + static_cast<std::uint32_t>(sample),
            U{} + static_cast<std::uint32_t>(sample >> 32)};
  auto key0 = static_cast<std::uint32_t>(key);
  auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    philox_round(c, key0, key1);
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  for (int counter = 0; counter < kLanes; ++counter) {
    for (int word = 0; word < 4; ++word) words[4 * counter + word] = c[word][counter];
  }
}

template <class T>
void dropout_typed(const Dropout& a) {
  constexpr std::int64_t kBatch = 4 * kLanes;
  std::uint32_t words[kBatch];
  for (std::int64_t r = 0; r < a.rows; ++r) {
    const T* x = typed<T>(a.x) + r * a.width;
    T* y = typed<T>(a.y) + r * a.width;
    const auto position = static_cast<std::uint32_t>(a.positions[r]);
    const auto sample = static_cast<std::uint64_t>(a.samples[r]);
    const std::int64_t skip =
        a.first_feature % 4;  // words of the first counter that belong to earlier features
    for (std::int64_t start = -skip; start < a.width; start += kBatch) {
      const auto counter = static_cast<std::uint32_t>((a.first_feature + start) / 4);
      philox_words(a.key, counter, position, sample, words);
      const std::int64_t from = start < 0 ? 0 : start;
      const std::int64_t to = start + kBatch < a.width ? start + kBatch : a.width;
      for_vectors(to - from, [&](std::int64_t i, std::int64_t n) {
        std::uint32_t some[kLanes] = {};
        __builtin_memcpy(some, words + (from - start) + i, static_cast<std::size_t>(n) * 4);
        U lanes;
        __builtin_memcpy(&lanes, some, sizeof(lanes));
        const F kept = lanes >= a.threshold ? splat(a.factor) : F{};
        put(y, from + i, n, get(x, from + i, n) * kept);
      });
    }
  }
}

}  // namespace
}  // namespace trireme::ops::kernels
