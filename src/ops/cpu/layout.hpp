#pragma once
#include "ops/cpu/rows.hpp"

/// Changes of layout around attention's matmuls. Included once by every instruction set's file.
namespace trireme::ops::kernels {
namespace {

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

/// One of four stages: exchanges, between vectors `distance` apart, the lanes
/// whose index has that bit different.
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

void row_products(const std::uint16_t* a, std::int64_t a_stride, const std::uint16_t* b,
                  std::int64_t b_stride, float* products, std::int64_t rows, std::int64_t width) {
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
