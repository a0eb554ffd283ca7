#include "parallel/collectives.hpp"

#include <ATen/ATen.h>

#include <vector>

#include "core/error.hpp"
#include "device/torch_bridge.hpp"

namespace trireme::parallel {
namespace {

std::uint64_t count_of(const at::Tensor& values) {
  TRIREME_ASSERT(values.is_contiguous());
  return static_cast<std::uint64_t>(values.numel());
}

}  // namespace

comm::WorkPtr all_reduce(comm::Communicator& group, const at::Tensor& values, comm::ReduceOp op,
                         std::string_view tag) {
  return group.all_reduce({.input = values.const_data_ptr(),
                           .output = values.mutable_data_ptr(),
                           .count = count_of(values),
                           .dtype = device::to_dtype(values.scalar_type()),
                           .op = op,
                           .stream = device::current_stream(values.device()),
                           .tag = tag});
}

comm::WorkPtr reduce_scatter(comm::Communicator& group, const at::Tensor& all,
                             const at::Tensor& sum, std::string_view tag) {
  TRIREME_ASSERT(all.numel() == sum.numel() * group.size() && all.is_contiguous());
  return group.reduce_scatter({.input = all.const_data_ptr(),
                               .output = sum.mutable_data_ptr(),
                               .count = count_of(sum),
                               .dtype = device::to_dtype(sum.scalar_type()),
                               .op = comm::ReduceOp::sum,
                               .stream = device::current_stream(sum.device()),
                               .tag = tag});
}

comm::WorkPtr all_gather(comm::Communicator& group, const at::Tensor& part, const at::Tensor& all,
                         std::string_view tag) {
  TRIREME_ASSERT(all.numel() == part.numel() * group.size() && all.is_contiguous());
  return group.all_gather({.input = part.const_data_ptr(),
                           .output = all.mutable_data_ptr(),
                           .count = count_of(part),
                           .dtype = device::to_dtype(part.scalar_type()),
                           .stream = device::current_stream(part.device()),
                           .tag = tag});
}

comm::WorkPtr all_to_all(comm::Communicator& group, const at::Tensor& sent,
                         const at::Tensor& received, std::string_view tag) {
  TRIREME_ASSERT(sent.numel() == received.numel() && received.is_contiguous());
  const auto ranks = static_cast<std::uint64_t>(group.size());
  const std::vector<std::uint64_t> counts(ranks, count_of(sent) / ranks);
  return all_to_all(group, sent, counts, received, counts, tag);
}

comm::WorkPtr all_to_all(comm::Communicator& group, const at::Tensor& sent,
                         std::span<const std::uint64_t> sent_counts, const at::Tensor& received,
                         std::span<const std::uint64_t> received_counts, std::string_view tag) {
  TRIREME_ASSERT(sent.is_contiguous() && received.is_contiguous());
  return group.all_to_all({.input = sent.const_data_ptr(),
                           .send_counts = sent_counts,
                           .output = received.mutable_data_ptr(),
                           .receive_counts = received_counts,
                           .dtype = device::to_dtype(sent.scalar_type()),
                           .stream = device::current_stream(sent.device()),
                           .tag = tag});
}

}  // namespace trireme::parallel
