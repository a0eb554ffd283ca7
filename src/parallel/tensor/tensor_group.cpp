#include "parallel/tensor/tensor_group.hpp"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.hpp"
#include "parallel/collectives.hpp"

namespace trireme::parallel {
namespace {

constexpr const char* kPurpose = "activations";

}  // namespace

at::Tensor TensorGroup::whole(const at::Tensor& x) const {
  if (!sequence_parallel_) return x;
  const at::Tensor mine = x.contiguous();  // [B, T / t, D]
  at::Tensor parts = at::empty({size(), mine.size(0), mine.size(1), mine.size(2)}, mine.options());
  all_gather(*group_, mine, parts, kPurpose)->wait();
  return parts.transpose(0, 1).reshape({mine.size(0), -1, mine.size(2)});
}

at::Tensor TensorGroup::sum(const at::Tensor& y) const {
  if (size() == 1) return y;
  at::Tensor sum;
  if (!sequence_parallel_) {
    sum = y.clone(at::MemoryFormat::Contiguous);
    all_reduce(*group_, sum, comm::ReduceOp::sum, kPurpose)->wait();
    return sum;
  }
  TRIREME_ASSERT(y.size(1) % size() == 0);
  const at::Tensor parts =  // [t, B, T / t, D]
      y.reshape({y.size(0), size(), y.size(1) / size(), y.size(2)}).transpose(0, 1).contiguous();
  sum = at::empty(parts.sizes().slice(1), parts.options());
  reduce_scatter(*group_, parts, sum, kPurpose)->wait();
  return sum;
}

at::Tensor TensorGroup::own_tokens(const at::Tensor& per_token) const {
  if (!sequence_parallel_) return per_token;
  const std::int64_t length = per_token.size(1) / size();
  return per_token.narrow(1, length * rank(), length).contiguous();
}

std::vector<IndexRange> token_chunks(std::int64_t tokens, std::int64_t chunks) {
  const auto count = static_cast<int>(std::clamp<std::int64_t>(tokens, 1, chunks));
  std::vector<IndexRange> ranges;
  for (int i = 0; i < count; ++i) ranges.push_back(split_range(tokens, {}, count, i));
  return ranges;
}

}  // namespace trireme::parallel
