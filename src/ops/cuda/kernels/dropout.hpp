#pragma once
#include <cstdint>

namespace trireme::ops::cuda {

/// Arguments of dropout. Rows of x and y are contiguous; each row has one block.
struct Dropout {
  const void* x;                  // [rows, width]
  void* y;                        // [rows, width]
  const std::int64_t* samples;    // [rows / length]
  const std::int64_t* positions;  // [rows]
  std::uint64_t key;
  std::int64_t first_feature;  // global index of the first column
  std::int64_t length;         // rows of a sample
  std::int64_t width;
  std::uint32_t threshold;  // an element is kept if its word is at least this
  float factor;             // multiplies the elements that are kept
};

}  // namespace trireme::ops::cuda
