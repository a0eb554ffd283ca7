#pragma once
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstdint>

#include "ops/cpu/kernels.hpp"
#include "ops/path.hpp"

/// What the wrappers of the CPU kernels share. Private to this folder.
namespace trireme::ops {

inline kernels::Element element_of(const at::Tensor& x) {
  return x.scalar_type() == at::kBFloat16 ? kernels::Element::bf16 : kernels::Element::f32;
}

/// Address of element `index`, counted in elements.
inline void* element_at(const at::Tensor& x, std::int64_t index) {
  return static_cast<char*>(x.data_ptr()) + index * static_cast<std::int64_t>(x.element_size());
}

/// Calls body(first, last) for blocks of kRowsPerBlock rows, on as many threads as ATen has.
template <class Body>
void for_row_blocks(std::int64_t rows, const Body& body) {
  const auto blocks = (rows + kRowsPerBlock - 1) / kRowsPerBlock;
  at::parallel_for(0, blocks, 1, [&](std::int64_t from, std::int64_t to) {
    for (auto block = from; block < to; ++block) {
      body(block * kRowsPerBlock, std::min(rows, (block + 1) * kRowsPerBlock));
    }
  });
}

/// One row of fp32 sums [width] for every block of rows, and their total in block order.
class BlockSums {
 public:
  BlockSums(std::int64_t rows, std::int64_t width)
      : sums_(at::zeros(
            {std::max<std::int64_t>((rows + kRowsPerBlock - 1) / kRowsPerBlock, 1), width},
            at::kFloat)) {}

  [[nodiscard]] float* of_row(std::int64_t first_row) const {
    return sums_.data_ptr<float>() + first_row / kRowsPerBlock * sums_.size(1);
  }

  [[nodiscard]] at::Tensor total() const {
    auto total = sums_.select(0, 0);
    for (std::int64_t block = 1; block < sums_.size(0); ++block) total.add_(sums_.select(0, block));
    return total;
  }

 private:
  at::Tensor sums_;
};

}  // namespace trireme::ops
