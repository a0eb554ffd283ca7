#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>

namespace trireme::optim {

/// Number of squares that are summed in fp64 before they enter an exact sum.
inline constexpr std::int64_t kSquaresBlock = 64;

/// Adds the squares of grads [n], which begin at element `begin` of a unit, to `words`
/// [ExactSum::kWords + 1] int64 on the same device. The words are those of an ExactSum over blocks,
/// which begin at multiples of 64 in the unit.
void add_block_squares(const at::Tensor& grads, std::int64_t begin, const at::Tensor& words);

/// Like add_block_squares, with ATen on any device. Same words if block sums round equally.
void add_block_squares_plain(const at::Tensor& grads, std::int64_t begin, const at::Tensor& words);

}  // namespace trireme::optim
