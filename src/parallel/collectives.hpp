#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "comm/communicator.hpp"

/// Collectives of contiguous tensors on the current stream. Tensors must outlive the work.
namespace trireme::parallel {

/// Reduces all elements in place.
[[nodiscard]] comm::WorkPtr all_reduce(comm::Communicator& group, const at::Tensor& values,
                                       comm::ReduceOp op, std::string_view tag);

/// Adds up `all` [size * n] over the ranks; `sum` [n] is part group.rank(), possibly in place.
[[nodiscard]] comm::WorkPtr reduce_scatter(comm::Communicator& group, const at::Tensor& all,
                                           const at::Tensor& sum, std::string_view tag);

/// Gathers every rank's part [n] into `all` [size * n], in rank order, possibly in place.
[[nodiscard]] comm::WorkPtr all_gather(comm::Communicator& group, const at::Tensor& part,
                                       const at::Tensor& all, std::string_view tag);

/// Exchanges rows of [size, n]: row r goes to rank r, and row r of `received` comes from it.
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
