#include "ops/cuda/grad_norm.hpp"

#include <ATen/ATen.h>

#include "ops/cuda/column_sums.hpp"

namespace trireme::ops::cuda {
namespace {

constexpr std::int64_t kMostBlocks = 512;
constexpr std::int64_t kTileElements = std::int64_t{kSquaresThreads} * kSquaresWidth;
constexpr std::int64_t kSquaresShared =
    std::int64_t{kSumWords} * kSquaresThreads * std::int64_t{sizeof(std::int64_t)} +
    std::int64_t{kSquaresThreads} * kSquaresPitch * std::int64_t{sizeof(float)};

}  // namespace

bool accepts_grad_norm(const at::Tensor& grads) {
  return grads.scalar_type() == at::kFloat &&
         accepts(grads, {&kBlockSquares, &kAddWords, &kClipFactor});
}

void add_block_squares(const at::Tensor& grads, std::int64_t begin, const at::Tensor& words) {
  const std::int64_t before = begin % kSquaresWidth;
  const std::int64_t tiles = (before + grads.numel() + kTileElements - 1) / kTileElements;
  const Chunks chunks = row_chunks(grads.numel() == 0 ? 0 : tiles, kMostBlocks);
  if (chunks.count == 0) return;
  const at::Tensor partials =
      at::empty({chunks.count, kSumWords}, grads.options().dtype(at::kLong));
  launch(kBlockSquares, grads, {chunks.count, kSquaresThreads, kSquaresShared},
         {.grads = data_of<float>(grads),
          .partials = data_of<std::int64_t>(partials),
          .count = grads.numel(),
          .before = before,
          .tiles = tiles,
          .tiles_per_block = chunks.rows});
  launch(kAddWords, grads,
         {1, kWordGroups * kWordThreads,
          std::int64_t{kWordGroups} * kSumWords * std::int64_t{sizeof(std::int64_t)}},
         {.partials = data_of<std::int64_t>(partials),
          .words = data_of<std::int64_t>(words),
          .rows = chunks.count});
}

at::Tensor clip_factor(const at::Tensor& words, double clip_norm, double loss_scale) {
  at::Tensor factor = at::empty({}, words.options().dtype(at::kFloat));
  launch(kClipFactor, factor, {1, 32},
         {.words = data_of<std::int64_t>(words),
          .factor = data_of<float>(factor),
          .clip_norm = clip_norm,
          .loss_scale = loss_scale});
  return factor;
}

}  // namespace trireme::ops::cuda
