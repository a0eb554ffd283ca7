#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "comm/communicator.hpp"

/// Collectives of contiguous tensors on the device's current stream. The tensors must live until
/// the work is complete.
namespace trireme {

/// Reduces all elements in place.
[[nodiscard]] WorkPtr all_reduce(Communicator& group, const at::Tensor& values, ReduceOp op,
                                 std::string_view tag);

/// Adds up `all` [size * n] over the ranks; `sum` [n] receives part group.rank(). `sum` may be a
/// view of that part.
[[nodiscard]] WorkPtr reduce_scatter(Communicator& group, const at::Tensor& all,
                                     const at::Tensor& sum, std::string_view tag);

/// Gathers every rank's part [n] into `all` [size * n], in rank order. `part` may be a view of its
/// place in `all`.
[[nodiscard]] WorkPtr all_gather(Communicator& group, const at::Tensor& part, const at::Tensor& all,
                                 std::string_view tag);

/// Exchanges rows: row r of `received` [size, n] is row group.rank() of the tensor [size, n] that
/// rank r sends.
[[nodiscard]] WorkPtr all_to_all(Communicator& group, const at::Tensor& sent,
                                 const at::Tensor& received, std::string_view tag);

/// Sends the first sent_counts[0] elements of `sent` to rank 0, the next to rank 1, and so on.
/// Elements arrive in the same order. Counts may be zero.
[[nodiscard]] WorkPtr all_to_all(Communicator& group, const at::Tensor& sent,
                                 std::span<const std::uint64_t> sent_counts,
                                 const at::Tensor& received,
                                 std::span<const std::uint64_t> received_counts,
                                 std::string_view tag);

}  // namespace trireme
