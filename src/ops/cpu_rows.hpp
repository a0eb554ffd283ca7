#pragma once
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "ops/cpu/kernels.hpp"
#include "ops/path.hpp"

/// Helpers for the CPU implementations in ops and objective.
namespace trireme::ops {

/// Returns true if the native CPU kernels accept x: fp32 or bf16 in host memory.
inline bool cpu_accepts(const at::Tensor& x) {
  return x.is_cpu() && (x.scalar_type() == at::kFloat || x.scalar_type() == at::kBFloat16);
}

inline kernels::Element element_of(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? kernels::Element::bf16 : kernels::Element::f32;
}

inline void* element_at(const at::Tensor& x, std::int64_t index) {
  return static_cast<char*>(x.data_ptr()) + index * static_cast<std::int64_t>(x.element_size());
}

/// Returns x, or a contiguous copy if its last dimension has gaps.
inline at::Tensor last_dim_contiguous(const at::Tensor& x) {
  return x.stride(-1) == 1 || x.size(-1) <= 1 ? x : x.contiguous();
}

/// Number of rows per partial sum of a weight gradient. The partial sums are added in order, so the
/// result does not depend on the number of threads.
inline constexpr std::int64_t kRowsPerChunk = 256;

/// Calls body(first, last) for chunks of kRowsPerChunk rows on ATen's threads.
template <class Body>
void for_row_chunks(std::int64_t rows, const Body& body) {
  const auto chunks = (rows + kRowsPerChunk - 1) / kRowsPerChunk;
  at::parallel_for(0, chunks, 1, [&](std::int64_t from, std::int64_t to) {
    for (auto chunk = from; chunk < to; ++chunk) {
      body(chunk * kRowsPerChunk, std::min(rows, (chunk + 1) * kRowsPerChunk));
    }
  });
}

/// Calls body(first, last) for ranges of any length. A row's result must not depend on other rows.
template <class Body>
void for_rows(std::int64_t rows, const Body& body) {
  constexpr std::int64_t kFewRows = 8;
  at::parallel_for(0, rows, kFewRows,
                   [&](std::int64_t first, std::int64_t last) { body(first, last); });
}

/// Calls body(first, last) for several chunks per thread, scheduled dynamically.
template <class Body>
void for_dynamic_chunks(std::int64_t count, const Body& body) {
  constexpr std::int64_t kChunksPerThread = 8;
  const std::int64_t threads = at::get_num_threads();
  const std::int64_t chunk = std::max<std::int64_t>(count / (threads * kChunksPerThread), 1);
  std::atomic<std::int64_t> next = 0;
  at::parallel_for(0, threads, 1, [&](std::int64_t, std::int64_t) {
    for (auto first = next.fetch_add(chunk); first < count; first = next.fetch_add(chunk))
      body(first, std::min(count, first + chunk));
  });
}

/// One row of fp32 sums [width] per chunk of rows, and their total in chunk order.
class ChunkSums {
 public:
  ChunkSums(std::int64_t rows, std::int64_t width, at::Device device)
      : sums_(at::zeros(
            {std::max<std::int64_t>((rows + kRowsPerChunk - 1) / kRowsPerChunk, 1), width},
            at::TensorOptions(device).dtype(at::kFloat))) {}

  [[nodiscard]] float* of_row(std::int64_t first_row) const {
    return sums_.data_ptr<float>() + first_row / kRowsPerChunk * sums_.size(1);
  }

  [[nodiscard]] at::Tensor total() const {
    auto total = sums_.select(0, 0);
    for (std::int64_t chunk = 1; chunk < sums_.size(0); ++chunk) total.add_(sums_.select(0, chunk));
    return total;
  }

 private:
  at::Tensor sums_;
};

}  // namespace trireme::ops
