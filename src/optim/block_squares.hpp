#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme {

/// Elements whose squares are added in fp64 before they enter an exact sum.
inline constexpr std::int64_t kSquaresBlock = 64;

/// Adds the squares of grads [n], elements `begin` and on of a unit, to `words` [ExactSum::kWords +
/// 1] int64 on the same device: ExactSum's words of the sums of every block, which begin at
/// multiples of 64 of the unit. Picks by device.
void add_block_squares(const at::Tensor& grads, std::int64_t begin, const at::Tensor& words);

/// By ATen alone, on any device; the other form's words, where block sums round alike.
void add_block_squares_plain(const at::Tensor& grads, std::int64_t begin, const at::Tensor& words);

}  // namespace trireme
