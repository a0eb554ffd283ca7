#include "ops/matmul.hpp"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <memory>
#include <new>

#include "ops/cpu_rows.hpp"
#include "ops/operations.hpp"
#include "ops/path.hpp"
#include "ops/product.hpp"

namespace trireme::ops {
namespace {

constexpr std::int64_t kColumns = kernels::kPanelColumns;
constexpr std::int64_t kTile = kernels::kPanelTileRows;

/// Largest number of words of k for one pass over out, if out is fp32. With a smaller block, the
/// packed tiles of a transposed a stay in the second-level cache.
constexpr std::int64_t kBlockWords = 1024;
constexpr std::int64_t kBlockWordsTransposed = 512;
/// Wider products with bf16 results have their sums in a temporary fp32 matrix.
constexpr std::int64_t kMostWords = 4096;
/// The part of b that is packed at a time, 2 MB for each of at most 8 threads. a is read again for
/// each part, and packed again if it is transposed.
constexpr std::int64_t kPackedWords = std::int64_t{512} << 10;
constexpr std::int64_t kLeastColumns = 256;
/// Largest part of a that a thread multiplies at a time, 768 KB: most of the second-level cache.
constexpr std::int64_t kPartWords = std::int64_t{192} << 10;
constexpr std::int64_t kMostBlockTiles = 12;
constexpr std::int64_t kGroupTiles = 4;  // the kernel packs four tiles at a time
/// The kernel computes whole panels of 32 columns. Measured on AMD family 26, one thread, with
/// m = 2048 and k = 512: 0.72 of LibTorch's speed with 8 columns, 1.05 with 16, and 1.02 to 1.13 for
/// the shapes of a model that is 512 wide. Products of 1 to 128 rows are 1.1 to 1.9 times as fast.
constexpr std::int64_t kFewestColumns = 16;
/// Fewer rows of fp32 do not pay for packing b. Measured on AMD family 25, n = k = 512, forward: 0.45
/// of LibTorch's speed with one row, 0.96 with 8, 1.00 with 16, 1.04 with 32, and more with more.
constexpr std::int64_t kFewestRowsFp32 = 16;

constexpr std::int64_t divided_up(std::int64_t x, std::int64_t y) {
  return (x + y - 1) / y;
}

using kernels::PanelWords;

PanelWords words_of(const at::Tensor& x) {
  if (x.scalar_type() == at::kFloat) return PanelWords::f32;
  return kernels::table().multiplies_pairs ? PanelWords::pairs : PanelWords::widened;
}

/// Returns the numbers in one word.
std::int64_t numbers_in(PanelWords words) {
  return words == PanelWords::pairs ? 2 : 1;
}

std::int64_t words_in(PanelWords words, std::int64_t width) {
  return divided_up(width, numbers_in(words));
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
  const at::Tensor& x;
  std::int64_t stride;
  bool transposed;

  [[nodiscard]] const void* at(std::int64_t row, std::int64_t column) const {
    return element_at(x, transposed ? column * stride + row : row * stride + column);
  }
};

bool has_unit_stride(const at::Tensor& x, std::int64_t dim) {
  return x.stride(dim) == 1 || x.size(dim) == 1;
}

/// Views x, or a copy in `kept` if both dimensions have gaps.
Matrix matrix_of(const at::Tensor& x, at::Tensor& kept) {
  kept = has_unit_stride(x, 1) || has_unit_stride(x, 0) ? x : x.contiguous();
  const bool transposed = !has_unit_stride(kept, 1);
  return {kept, kept.stride(transposed ? 1 : 0), transposed};
}

struct Range {
  std::int64_t first;
  std::int64_t count;
};

/// A product with columns of b that are packed together, and one range of k.
struct Pass {
  PanelWords words;
  Matrix a;
  Matrix b;
  std::int64_t rows;
  Range columns;
  Range width;
  std::uint32_t* panels;
  std::int64_t panel_stride;
  const at::Tensor& out;
  bool add;

  [[nodiscard]] std::int64_t words_wide() const { return words_in(words, width.count); }
};

void pack(const Pass& pass) {
  constexpr std::int64_t kLeastPanels = 4;
  const std::int64_t panels = divided_up(pass.columns.count, kColumns);
  at::parallel_for(0, panels, kLeastPanels, [&](std::int64_t first, std::int64_t last) {
    const std::int64_t column = first * kColumns;
    kernels::table().pack_panels({.words = pass.words,
                                  .b = pass.b.at(pass.width.first, pass.columns.first + column),
                                  .b_stride = pass.b.stride,
                                  .b_transposed = pass.b.transposed,
                                  .width = pass.width.count,
                                  .columns = std::min(last * kColumns, pass.columns.count) - column,
                                  .panels = pass.panels + first * pass.panel_stride,
                                  .panel_stride = pass.panel_stride});
  });
}

/// Divides C into tiles of rows and, if there are fewer tiles than threads, into parts of columns.
struct Grid {
  std::int64_t tiles;
  std::int64_t columns;  // a multiple of kColumns
  std::int64_t parts;

  explicit Grid(const Pass& pass) : tiles(divided_up(pass.rows, kTile)) {
    const std::int64_t panels = divided_up(pass.columns.count, kColumns);
    const std::int64_t wanted = divided_up(at::get_num_threads(), tiles);
    columns = divided_up(panels, std::min(panels, wanted)) * kColumns;
    parts = divided_up(pass.columns.count, columns);
  }
};

/// Multiplies `rows`, of which there may be more than the product has, for one part of the columns.
void multiply_block(const Pass& pass, Range rows, std::int64_t next_rows, Range columns) {
  thread_local Scratch scratch;
  constexpr std::int64_t kPad = 32;
  const std::int64_t count = std::min(rows.count, pass.rows - rows.first);
  kernels::table().panel_products(
      {.words = pass.words,
       .a = pass.a.at(rows.first, pass.width.first),
       .a_stride = pass.a.stride,
       .a_transposed = pass.a.transposed,
       .panels = pass.panels + columns.first / kColumns * pass.panel_stride,
       .panel_stride = pass.panel_stride,
       .c = element_at(pass.out,
                       rows.first * pass.out.stride(0) + pass.columns.first + columns.first),
       .c_element = element_of(pass.out),
       .c_stride = pass.out.stride(0),
       .add = pass.add,
       .rows = count,
       .columns = std::min(columns.count, pass.columns.count - columns.first),
       .width = pass.width.count,
       .next_rows = std::clamp<std::int64_t>(pass.rows - rows.first - count, 0, next_rows),
       .scratch = scratch.words(rows.count * (pass.words_wide() + kPad))});
}

void run(const Pass& pass) {
  pack(pass);
  const Grid grid(pass);
  const std::int64_t most_tiles =
      pass.a.transposed
          ? kGroupTiles
          : std::clamp(kPartWords / pass.words_wide() / kTile, kGroupTiles, kMostBlockTiles);
  at::parallel_for(0, grid.tiles * grid.parts, 1, [&](std::int64_t first, std::int64_t last) {
    while (first < last) {
      const std::int64_t tile = first % grid.tiles;
      const std::int64_t left = std::min(last - first, grid.tiles - tile);
      const std::int64_t tiles = std::min(left, most_tiles);
      multiply_block(pass, {tile * kTile, tiles * kTile},
                     std::min(left - tiles, most_tiles) * kTile,
                     {first / grid.tiles * grid.columns, grid.columns});
      first += tiles;
    }
  });
}

/// Returns true if the kernel cannot write its results to out directly.
bool needs_sums(const at::Tensor& out, std::int64_t words) {
  if (!cpu_accepts(out) || !has_unit_stride(out, 1)) return true;
  return out.scalar_type() == at::kBFloat16 && words > kMostWords;
}

/// Returns true if the kernels are faster than LibTorch for x's dtype. LibTorch multiplies fp32 with
/// MKL, which uses AVX-512 on Intel only, and bf16 with AMX if the CPU has it.
bool are_faster(const at::Tensor& x) {
  if (words_of(x) == PanelWords::widened) return widens_products(x);
  return words_of(x) == PanelWords::pairs || !kernels::is_intel();
}

}  // namespace

bool has_packed_matmul(const at::Tensor& x) {
  if (path_of(Operation::matmul, Path::fast) == Path::plain) return false;
  return kernels::table().panel_products != nullptr && cpu_accepts(x) && are_faster(x);
}

bool takes_packed_matmul(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || !has_packed_matmul(a)) return false;
  if (!b.is_cpu() || a.numel() == 0 || b.numel() == 0 || b.size(1) < kFewestColumns) return false;
  return words_of(a) != PanelWords::f32 || a.numel() / a.size(-1) >= kFewestRowsFp32;
}

void packed_matmul(const at::Tensor& a, const at::Tensor& b, const at::Tensor& out, bool add) {
  const at::NoGradGuard no_grad;
  const PanelWords words = words_of(a);
  const std::int64_t width = a.size(1);
  if (needs_sums(out, words_in(words, width))) {
    const at::Tensor sums = at::empty(out.sizes(), out.options().dtype(at::kFloat));
    packed_matmul(a, b, sums, /*add=*/false);
    add ? out.add_(sums) : out.copy_(sums);
    return;
  }
  thread_local Scratch scratch;
  at::Tensor kept_a;
  at::Tensor kept_b;
  const Matrix left = matrix_of(a, kept_a);
  const Matrix right = matrix_of(b, kept_b);
  const std::int64_t block_words = left.transposed ? kBlockWordsTransposed : kBlockWords;
  const bool in_blocks = out.scalar_type() == at::kFloat;
  const std::int64_t block = in_blocks ? std::min(width, block_words * numbers_in(words)) : width;
  const std::int64_t panel_stride = (words_in(words, block) + 1) * kColumns;
  const std::int64_t most_columns = std::max(kPackedWords / words_in(words, block), kLeastColumns) *
                                    std::min<std::int64_t>(at::get_num_threads(), 8);
  const std::int64_t columns = divided_up(std::min(b.size(1), most_columns), kColumns) * kColumns;
  std::uint32_t* const panels = scratch.words(columns / kColumns * panel_stride);
  for (std::int64_t n = 0; n < b.size(1); n += columns) {
    for (std::int64_t k = 0; k < width; k += block) {
      run({words,
           left,
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
