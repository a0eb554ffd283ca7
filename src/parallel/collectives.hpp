#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "comm/communicator.hpp"

/// Collectives on contiguous tensors. They run on the current stream. The tensors must stay alive
/// until the returned Work is complete.
namespace trireme::parallel {

/// Reduces all elements in place.
[[nodiscard]] comm::WorkPtr all_reduce(comm::Communicator& group, const at::Tensor& values,
                                       comm::ReduceOp op, std::string_view tag);

/// Sums `all` [size * n] over the ranks. `sum` [n] receives part group.rank() of the result and may
/// be that part of `all`.
[[nodiscard]] comm::WorkPtr reduce_scatter(comm::Communicator& group, const at::Tensor& all,
                                           const at::Tensor& sum, std::string_view tag);

/// Gathers every rank's `part` [n] into `all` [size * n], in rank order. `part` may be this rank's
/// part of `all`.
[[nodiscard]] comm::WorkPtr all_gather(comm::Communicator& group, const at::Tensor& part,
                                       const at::Tensor& all, std::string_view tag);

/// Exchanges rows of [size, n]: row r of `sent` goes to rank r, and row r of `received` comes from
/// rank r.
[[nodiscard]] comm::WorkPtr all_to_all(comm::Communicator& group, const at::Tensor& sent,
                                       const at::Tensor& received, std::string_view tag);

/// Sends the first sent_counts[0] elements of `sent` to rank 0, the next to rank 1, and so on.
/// Elements arrive in the same order. Counts may be zero.
[[nodiscard]] comm::WorkPtr all_to_all(comm::Communicator& group, const at::Tensor& sent,
                                       std::span<const std::uint64_t> sent_counts,
                                       const at::Tensor& received,
                                       std::span<const std::uint64_t> received_counts,
                                       std::string_view tag);

}  // namespace trireme::parallel
