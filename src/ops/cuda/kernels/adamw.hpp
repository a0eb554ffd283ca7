#pragma once
#include <cstdint>

namespace trireme::ops::cuda {

/// Contiguous elements with one weight decay.
struct AdamWPiece {
  void* copy;  // [count] in the element type: the rounded weights; null: none
  float* weights;
  const float* grads;
  float* exp_avg;
  float* exp_avg_sq;
  std::int64_t count;
  std::int64_t first_block;  // the blocks of a piece follow one another
  float keep;                // 1 - lr * weight decay
};

inline constexpr int kAdamWPieces = 56;          // most pieces of a launch
inline constexpr int kAdamWBlock = 256 * 4 * 4;  // elements of a block

/// Arguments of adamw.
struct AdamWUpdate {
  AdamWPiece pieces[kAdamWPieces];
  int num_pieces;
  const float* factor;  // [1] on all gradients; not finite: nothing changes
  float rate1;          // 1 - beta1
  float rate2;          // 1 - beta2
  float step_size;      // lr / (1 - beta1^t)
  float inverse_root;   // 1 / sqrt(1 - beta2^t)
  float eps;
};

}  // namespace trireme::ops::cuda
