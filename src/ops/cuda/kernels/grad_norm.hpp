#pragma once
#include <cstdint>

/// Arguments of the kernels in grad_norm.cu.
namespace trireme::ops::cuda {

/// A block of block_squares has a tile of 64 blocks of squares, one for each thread.
inline constexpr int kSquaresThreads = 64;
inline constexpr int kSquaresWidth = 64;                 // elements of a block of squares
inline constexpr int kSquaresPitch = kSquaresWidth + 1;  // avoids bank conflicts of shared memory
inline constexpr int kSumWords = 68;                     // the words of an exact sum and the count

struct BlockSquares {
  const float* grads;      // [count]
  std::int64_t* partials;  // [thread blocks, kSumWords]
  std::int64_t count;
  std::int64_t before;  // elements of the first block of squares before grads[0]
  std::int64_t tiles;
  std::int64_t tiles_per_block;
};

/// The threads of add_words: several rows of partial sums at a time.
inline constexpr int kWordGroups = 8;
inline constexpr int kWordThreads = 96;  // per group, of which kSumWords work

struct AddWords {
  const std::int64_t* partials;  // [rows, kSumWords]
  std::int64_t* words;           // [kSumWords]: the sums are added here
  std::int64_t rows;
};

struct ClipFactor {
  const std::int64_t* words;  // [kSumWords]
  float* factor;              // [1]
  double clip_norm;           // 0: no clipping
  double loss_scale;
};

}  // namespace trireme::ops::cuda
