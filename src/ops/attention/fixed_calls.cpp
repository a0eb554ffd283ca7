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

std::int64_t longest_document(const RowBounds& bounds, std::int64_t length) {
  if (bounds.empty()) return length;
  std::int64_t longest = 0;
  for (const std::vector<std::int64_t>& row : bounds) {
    for (std::size_t i = 1; i < row.size(); ++i) longest = std::max(longest, row[i] - row[i - 1]);
  }
  return longest;
}

FixedCalls::FixedCalls(const FixedShape& shape, at::Device device)
    : shape_(shape),
      offsets_(static_cast<std::size_t>(shape.documents) + 1, 0),
      starts_(
          at::zeros({shape.documents + 1}, at::TensorOptions().dtype(at::kInt).device(device))) {}

void FixedCalls::set(const RowBounds& bounds) {
  TRIREME_ASSERT(num_documents(bounds, shape_.batch) <= shape_.documents &&
                 longest_document(bounds, shape_.length) <= shape_.longest);
  auto next = offsets_.begin() + 1;
  for (std::int64_t row = 0; row < shape_.batch; ++row) {
    const std::int64_t base = row * shape_.length;
    if (bounds.empty()) {
      *next++ = static_cast<std::int32_t>(base + shape_.length);
      continue;
    }
    const std::vector<std::int64_t>& of_row = bounds[static_cast<std::size_t>(row)];
    for (auto end = of_row.begin() + 1; end != of_row.end(); ++end)
      *next++ = static_cast<std::int32_t>(base + *end);
  }
  std::fill(next, offsets_.end(), static_cast<std::int32_t>(shape_.batch * shape_.length));
  starts_.copy_(upload(at::tensor(offsets_, at::kInt), starts_.device()));
  for (const auto& [mask, calls] : calls_)
    calls->front().query_offsets = calls->front().key_offsets = offsets_;
}

std::shared_ptr<const std::vector<VarlenCall>> FixedCalls::calls(const AttentionMask& mask,
                                                                 std::int64_t batch,
                                                                 std::int64_t num_queries,
                                                                 std::int64_t num_keys) {
  TRIREME_ASSERT(mask.causal && batch == shape_.batch && num_queries == shape_.length &&
                 num_keys == shape_.length);
  for (const auto& [known, calls] : calls_)
    if (known == mask) return calls;
  VarlenCall call{
      .causal = true,
      .window_left = mask.window > 0 && mask.window < shape_.length ? mask.window - 1 : -1,
      .query_offsets = offsets_,
      .key_offsets = offsets_,
      .longest_queries = shape_.longest,
      .longest_keys = shape_.longest,
      .queries = {{0, shape_.batch * shape_.length}},
      .keys = {{0, shape_.batch * shape_.length}},
      .query_starts = starts_,
      .key_starts = starts_};
  calls_.emplace_back(mask, std::make_shared<std::vector<VarlenCall>>(1, std::move(call)));
  return calls_.back().second;
}

}  // namespace trireme::ops
