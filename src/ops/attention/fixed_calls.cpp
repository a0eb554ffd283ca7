#include "ops/attention/fixed_calls.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.hpp"
#include "ops/upload.hpp"

namespace trireme::ops {

std::int64_t num_documents(const RowBounds& bounds, std::int64_t batch) {
  if (bounds.empty()) return batch;
  std::int64_t count = 0;
  for (const std::vector<std::int64_t>& row : bounds) count += std::ssize(row) - 1;
  return count;
}

FixedCalls::FixedCalls(std::int64_t batch, std::int64_t length, std::int64_t capacity,
                       at::Device device)
    : batch_(batch),
      length_(length),
      offsets_(static_cast<std::size_t>(capacity) + 1, 0),
      starts_(at::zeros({capacity + 1}, at::TensorOptions().dtype(at::kInt).device(device))) {}

void FixedCalls::set(const RowBounds& bounds) {
  TRIREME_ASSERT(num_documents(bounds, batch_) < std::ssize(offsets_));
  auto next = offsets_.begin() + 1;
  for (std::int64_t row = 0; row < batch_; ++row) {
    const std::int64_t base = row * length_;
    if (bounds.empty()) {
      *next++ = static_cast<std::int32_t>(base + length_);
      continue;
    }
    const std::vector<std::int64_t>& of_row = bounds[static_cast<std::size_t>(row)];
    for (auto end = of_row.begin() + 1; end != of_row.end(); ++end)
      *next++ = static_cast<std::int32_t>(base + *end);
  }
  std::fill(next, offsets_.end(), static_cast<std::int32_t>(batch_ * length_));
  starts_.copy_(upload(at::tensor(offsets_, at::kInt), starts_.device()));
  for (const auto& [mask, calls] : calls_)
    calls->front().query_offsets = calls->front().key_offsets = offsets_;
}

std::shared_ptr<const std::vector<VarlenCall>> FixedCalls::calls(const AttentionMask& mask,
                                                                 std::int64_t batch,
                                                                 std::int64_t num_queries,
                                                                 std::int64_t num_keys) {
  TRIREME_ASSERT(mask.causal && batch == batch_ && num_queries == length_ && num_keys == length_);
  for (const auto& [known, calls] : calls_)
    if (known == mask) return calls;
  VarlenCall call{.causal = true,
                  .window_left = mask.window > 0 && mask.window < length_ ? mask.window - 1 : -1,
                  .query_offsets = offsets_,
                  .key_offsets = offsets_,
                  .longest_queries = length_,
                  .longest_keys = length_,
                  .queries = {{0, batch_ * length_}},
                  .keys = {{0, batch_ * length_}},
                  .query_starts = starts_,
                  .key_starts = starts_};
  calls_.emplace_back(mask, std::make_shared<std::vector<VarlenCall>>(1, std::move(call)));
  return calls_.back().second;
}

}  // namespace trireme::ops
