#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "comm/communicator.hpp"

/// Collectives of contiguous tensors, on the device's current stream. The tensors must live until
/// the work is complete.
namespace trireme {

/// In place, over all elements.
[[nodiscard]] WorkPtr all_reduce(Communicator& group, const at::Tensor& values, ReduceOp op,
                                 std::string_view tag);

/// sum [n]: part group.rank() of all [size * n], added up over the ranks; it may lie inside.
[[nodiscard]] WorkPtr reduce_scatter(Communicator& group, const at::Tensor& all,
                                     const at::Tensor& sum, std::string_view tag);

/// all [size * n]: every rank's part [n], in rank order; the own part may lie inside.
[[nodiscard]] WorkPtr all_gather(Communicator& group, const at::Tensor& part, const at::Tensor& all,
                                 std::string_view tag);

/// received [size, n]: row r is row group.rank() of what rank r sends, [size, n].
[[nodiscard]] WorkPtr all_to_all(Communicator& group, const at::Tensor& sent,
                                 const at::Tensor& received, std::string_view tag);

/// The first sent_counts[0] elements of `sent` go to rank 0, the next to rank 1, and so on; received in
/// the same order. Counts may be zero.
[[nodiscard]] WorkPtr all_to_all(Communicator& group, const at::Tensor& sent,
                                 std::span<const std::uint64_t> sent_counts,
                                 const at::Tensor& received,
                                 std::span<const std::uint64_t> received_counts,
                                 std::string_view tag);

}  // namespace trireme
