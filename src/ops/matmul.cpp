#include "ops/matmul.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <new>

#include "ops/cpu_rows.hpp"

namespace trireme::ops {
namespace {

constexpr std::int64_t kColumns = kernels::kPanelColumns;
constexpr std::int64_t kTile = kernels::kPairTileRows;

/// Largest number of rows of b (k) for one pass over out, if out is fp32.
constexpr std::int64_t kBlockWidth = 2048;
/// Wider products with bf16 results have their sums in a temporary fp32 matrix.
constexpr std::int64_t kLargestWidth = 8192;
/// The part of b that is packed at a time. a is read again for each part, and packed again if it is
/// transposed, so the part is then larger (2 MB, else 512 KB).
constexpr std::int64_t kPackedElements = std::int64_t{256} << 10;
constexpr std::int64_t kPackedElementsTransposed = std::int64_t{1} << 20;
constexpr std::int64_t kLeastColumns = 256;
/// Largest part of a that a thread multiplies at a time, 768 KB: most of the second-level cache.
constexpr std::int64_t kBlockElements = std::int64_t{384} << 10;
constexpr std::int64_t kMostBlockRows = 144;
constexpr std::int64_t kGroupTiles = 4;  // the kernel packs four tiles at a time
/// The kernel computes whole panels of 32 columns. Measured on AMD family 26, one thread, with
/// m = 2048 and k = 512: 0.72 of LibTorch's speed with 8 columns, 1.05 with 16, and 1.02 to 1.13 for
/// the shapes of a model that is 512 wide. Products of 1 to 128 rows are 1.1 to 1.9 times as fast.
constexpr std::int64_t kFewestColumns = 16;

constexpr std::int64_t divided_up(std::int64_t x, std::int64_t y) {
  return (x + y - 1) / y;
}

/// Memory of one thread, which stays allocated: new pages for each product would cost more time
/// than packing.
class Scratch {
 public:
  std::uint32_t* words(std::int64_t count) {
    if (count > count_) {
      words_.reset(static_cast<std::uint32_t*>(
          ::operator new(static_cast<std::size_t>(count) * sizeof(std::uint32_t), kAlignment)));
      count_ = count;
    }
    return words_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};

  struct Free {
    void operator()(std::uint32_t* words) const { ::operator delete(words, kAlignment); }
  };

  std::unique_ptr<std::uint32_t, Free> words_;
  std::int64_t count_ = 0;
};

/// A matrix with one dimension without gaps.
struct Matrix {
  const std::uint16_t* data;
  std::int64_t stride;
  bool transposed;

  [[nodiscard]] const std::uint16_t* at(std::int64_t row, std::int64_t column) const {
    return transposed ? data + column * stride + row : data + row * stride + column;
  }
};

bool has_unit_stride(const at::Tensor& x, std::int64_t dim) {
  return x.stride(dim) == 1 || x.size(dim) == 1;
}

/// Views x, or a copy in `kept` if both dimensions have gaps.
Matrix matrix_of(const at::Tensor& x, at::Tensor& kept) {
  kept = has_unit_stride(x, 1) || has_unit_stride(x, 0) ? x : x.contiguous();
  const bool transposed = !has_unit_stride(kept, 1);
  return {static_cast<const std::uint16_t*>(kept.const_data_ptr()), kept.stride(transposed ? 1 : 0),
          transposed};
}

struct Range {
  std::int64_t first;
  std::int64_t count;
};

/// A product with columns of b that are packed together, and one range of k.
struct Pass {
  Matrix a;
  Matrix b;
  std::int64_t rows;
  Range columns;
  Range width;
  std::uint32_t* panels;
  std::int64_t panel_stride;
  const at::Tensor& out;
  bool add;
};

void pack(const Pass& pass) {
  constexpr std::int64_t kLeastPanels = 4;
  const std::int64_t panels = divided_up(pass.columns.count, kColumns);
  at::parallel_for(0, panels, kLeastPanels, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t column = first * kColumns;
    kernels::table().pack_pair_panels(
        {.b = pass.b.at(pass.width.first, pass.columns.first + column),
         .b_stride = pass.b.stride,
         .b_transposed = pass.b.transposed,
         .width = pass.width.count,
         .columns = std::min(last * kColumns, pass.columns.count) - column,
         .panels = pass.panels + first * pass.panel_stride,
         .panel_stride = pass.panel_stride});
  });
}

/// Divides C into blocks of whole tiles. Every thread gets the same number of blocks if possible.
struct Blocks {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t down;  // number of blocks
  std::int64_t across;

  explicit Blocks(const Pass& pass) {
    const std::int64_t threads = at::get_num_threads();
    const std::int64_t most =
        std::clamp(kBlockElements / pass.width.count, kGroupTiles * kTile, kMostBlockRows);
    const std::int64_t least_blocks = divided_up(pass.rows, most);
    const std::int64_t even = divided_up(least_blocks, threads) * threads;
    rows = divided_up(divided_up(pass.rows, even), kTile) * kTile;
    down = divided_up(pass.rows, rows);
    const std::int64_t panels = divided_up(pass.columns.count, kColumns);
    across = down >= threads ? 1 : std::min(panels, divided_up(threads, down));
    columns = divided_up(panels, across) * kColumns;
    across = divided_up(pass.columns.count, columns);
  }
};

void multiply_block(const Pass& pass, const Blocks& blocks, Range down, std::int64_t across) {
  thread_local Scratch scratch;
  const std::int64_t row = down.first * blocks.rows;
  const std::int64_t column = across * blocks.columns;
  const std::int64_t rows = std::min(blocks.rows, pass.rows - row);
  const std::int64_t rest = down.count > 1 ? pass.rows - row - rows : 0;
  const std::int64_t words =
      divided_up(rows, kTile) * kTile * (divided_up(pass.width.count, 2) + 16);
  const bool copies = pass.a.transposed || pass.width.count % 2 != 0;
  kernels::table().pair_products(
      {.a = pass.a.at(row, pass.width.first),
       .a_stride = pass.a.stride,
       .a_transposed = pass.a.transposed,
       .panels = pass.panels + column / kColumns * pass.panel_stride,
       .panel_stride = pass.panel_stride,
       .c = element_at(pass.out, row * pass.out.stride(0) + pass.columns.first + column),
       .c_element = element_of(pass.out),
       .c_stride = pass.out.stride(0),
       .add = pass.add,
       .rows = rows,
       .columns = std::min(blocks.columns, pass.columns.count - column),
       .width = pass.width.count,
       .next_rows = std::min(blocks.rows, rest),
       .scratch = copies ? scratch.words(words) : nullptr});
}

void run(const Pass& pass) {
  pack(pass);
  const Blocks blocks(pass);
  at::parallel_for(0, blocks.down * blocks.across, 1, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t i = first; i < last; ++i) {
      const std::int64_t across = i / blocks.down;
      const std::int64_t down = i % blocks.down;
      multiply_block(pass, blocks, {down, std::min(last - i, blocks.down - down)}, across);
    }
  });
}

/// Returns true if the kernel cannot write its results to out directly.
bool needs_sums(const at::Tensor& out, std::int64_t width) {
  if (!cpu_accepts(out) || !has_unit_stride(out, 1)) return true;
  return out.scalar_type() == at::kBFloat16 && width > kLargestWidth;
}

}  // namespace

bool has_pair_matmul(const at::Tensor& x) {
  return x.is_cpu() && x.scalar_type() == at::kBFloat16 &&
         kernels::table().pair_products != nullptr;
}

bool takes_pair_matmul(const at::Tensor& a, const at::Tensor& b) {
  if (!has_pair_matmul(a) || !has_pair_matmul(b)) return false;
  return a.numel() > 0 && b.numel() > 0 && b.size(1) >= kFewestColumns;
}

void pair_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, bool add) {
  const at::NoGradGuard no_grad;
  const std::int64_t width = a.size(1);
  if (needs_sums(out, width)) {
    const at::Tensor sums = at::empty(out.sizes(), out.options().dtype(at::kFloat));
    pair_matmul(a, b, sums, /*add=*/false);
    add ? out.add_(sums) : out.copy_(sums);
    return;
  }
  thread_local Scratch scratch;
  const std::int64_t block = out.scalar_type() == at::kFloat ? std::min(width, kBlockWidth) : width;
  const std::int64_t panel_stride = (divided_up(block, 2) + 1) * kColumns;
  at::Tensor kept_a;
  at::Tensor kept_b;
  const Matrix left = matrix_of(a, kept_a);
  const Matrix right = matrix_of(b, kept_b);
  const std::int64_t packed = left.transposed ? kPackedElementsTransposed : kPackedElements;
  const std::int64_t most_columns = std::max(packed / block, kLeastColumns);
  const std::int64_t columns = divided_up(std::min(b.size(1), most_columns), kColumns) * kColumns;
  std::uint32_t* const panels = scratch.words(columns / kColumns * panel_stride);
  for (std::int64_t n = 0; n < b.size(1); n += columns) {
    for (std::int64_t k = 0; k < width; k += block) {
      run({left,
           right,
           a.size(0),
           {n, std::min(columns, b.size(1) - n)},
           {k, std::min(block, width - k)},
           panels,
           panel_stride,
           out,
           add || k > 0});
    }
  }
}

}  // namespace trireme::ops
