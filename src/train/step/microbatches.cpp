#include "train/step/microbatches.hpp"

namespace trireme {
namespace {

at::Tensor to_tensor(const std::vector<std::int64_t>& values, at::IntArrayRef shape,
                     at::Device device) {
  at::Tensor tensor =
      at::empty(shape, at::TensorOptions().dtype(at::kLong).pinned_memory(device.is_cuda()));
  std::copy(values.begin(), values.end(), tensor.mutable_data_ptr<std::int64_t>());
  return tensor.to(device, /*non_blocking=*/true);
}

/// Flat bounds 0..B*T become one list a row; every row starts a segment, so each row's list starts
/// at 0 and ends at T.
std::vector<std::vector<std::int64_t>> row_bounds(const Batch& batch) {
  std::vector<std::vector<std::int64_t>> rows(static_cast<std::size_t>(batch.B));
  for (const std::int32_t bound : batch.segment_bounds) {
    const std::int64_t row = bound / batch.T;
    if (bound > 0 && bound % batch.T == 0)
      rows[static_cast<std::size_t>(row - 1)].push_back(batch.T);
    if (row < batch.B) rows[static_cast<std::size_t>(row)].push_back(bound % batch.T);
  }
  return rows;
}

}  // namespace

Microbatch to_microbatch(const Batch& batch, at::Device device, std::int64_t step, bool training) {
  Microbatch result;
  result.tokens = to_tensor(batch.tokens, {batch.B, batch.T}, device);
  result.targets = to_tensor(batch.targets, {batch.B, batch.T}, device);
  result.positions = to_tensor(batch.positions, {batch.B, batch.T}, device);
  result.places = at::arange(batch.T, result.positions.options()).expand({batch.B, batch.T});
  result.samples = to_tensor(batch.sample_indices, {batch.B}, device);
  result.bounds = row_bounds(batch);
  result.step = step;
  result.training = training;
  return result;
}

}  // namespace trireme
