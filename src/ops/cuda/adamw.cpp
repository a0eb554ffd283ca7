#include "ops/cuda/adamw.hpp"

#include <ATen/ATen.h>

#include <algorithm>

namespace trireme::ops::cuda {
namespace {

constexpr int kThreads = 256;

AdamWPiece piece_of(const AdamWTensors& one, double lr, std::int64_t first_block) {
  return {.copy = data_or_null(one.copy),
          .weights = data_of<float>(one.weights),
          .grads = data_of<float>(one.grads),
          .exp_avg = data_of<float>(one.exp_avg),
          .exp_avg_sq = data_of<float>(one.exp_avg_sq),
          .count = one.weights.numel(),
          .first_block = first_block,
          .keep = static_cast<float>(1 - lr * one.decay)};
}

}  // namespace

bool accepts_adamw(const AdamWTensors& piece) {
  const at::Tensor& weights = piece.weights;
  return weights.scalar_type() == at::kFloat && accepts(weights, {}) &&
         accepts(piece.copy.defined() ? piece.copy : weights, {&kAdamW});
}

void adamw(const std::vector<AdamWTensors>& pieces, const AdamWNumbers& numbers,
           const at::Tensor& factor) {
  const AdamWRates rates(numbers);
  AdamWUpdate arguments{};
  arguments.factor = data_of<float>(factor);
  arguments.rate1 = rates.rate1;
  arguments.rate2 = rates.rate2;
  arguments.step_size = rates.step_size;
  arguments.inverse_root = rates.inverse_root;
  arguments.eps = rates.eps;
  for (std::size_t first = 0; first < pieces.size(); first += kAdamWPieces) {
    const std::size_t count = std::min<std::size_t>(pieces.size() - first, kAdamWPieces);
    std::int64_t blocks = 0;
    for (std::size_t i = 0; i < count; ++i) {
      const AdamWTensors& one = pieces[first + i];
      arguments.pieces[i] = piece_of(one, numbers.lr, blocks);
      blocks += (one.weights.numel() + kAdamWBlock - 1) / kAdamWBlock;
    }
    arguments.num_pieces = static_cast<int>(count);
    const AdamWTensors& one = pieces[first];
    launch(kAdamW, one.copy.defined() ? one.copy : one.weights, {blocks, kThreads}, arguments);
  }
}

}  // namespace trireme::ops::cuda
