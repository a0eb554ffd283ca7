#pragma once
#include <cstdint>

namespace trireme::ops::cuda {

/// Consecutive entries of the sorted index that one block of embedding_segments adds.
inline constexpr int kSegment = 64;

/// Arguments of embedding_segments and embedding_runs. A run is all entries of the sorted index
/// with one value. Each segment has one block.
struct EmbeddingGradient {
  const std::int64_t* index;  // [count] rows of the table, sorted
  const std::int64_t* order;  // [count] the row of grads for each entry of the index
  const void* grads;          // [count, width]
  float* table;               // [rows, width]: the sums are added here
  float* partials;            // [segments, 2, width]: sums of runs that reach other segments
  std::int64_t count;
  std::int64_t width;
};

}  // namespace trireme::ops::cuda
