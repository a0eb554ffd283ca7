#include "train/verify/bench_collectives.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>

#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "core/timer.hpp"
#include "device/device.hpp"
#include "device/torch_bridge.hpp"
#include "parallel/collectives.hpp"

namespace trireme::train {
namespace {

constexpr std::int64_t kElement = 4;  // fp32
constexpr int kWarmUps = 2;
constexpr int kLeastRepetitions = 3;
constexpr int kMostRepetitions = 200;

/// The tensors of one operation, and a function that starts it.
struct Operation {
  std::string_view name;
  comm::WorkPtr (*start)(comm::Communicator& group, const at::Tensor& in, const at::Tensor& out);
};

/// Returns this rank's part of `values`.
at::Tensor own_part(const comm::Communicator& group, const at::Tensor& values) {
  const std::int64_t part = values.numel() / group.size();
  return values.narrow(0, part * group.rank(), part);
}

const std::array<Operation, 6> kOperations{{
    {"all_reduce",
     [](comm::Communicator& group, const at::Tensor& in, const at::Tensor&) {
       return parallel::all_reduce(group, in, comm::ReduceOp::sum, "bench");
     }},
    {"reduce_scatter",
     [](comm::Communicator& group, const at::Tensor& in, const at::Tensor& out) {
       return parallel::reduce_scatter(group, in, own_part(group, out), "bench");
     }},
    {"all_gather",
     [](comm::Communicator& group, const at::Tensor& in, const at::Tensor& out) {
       return parallel::all_gather(group, own_part(group, in), out, "bench");
     }},
    {"all_to_all",
     [](comm::Communicator& group, const at::Tensor& in, const at::Tensor& out) {
       return parallel::all_to_all(group, in.view({group.size(), -1}), out.view({group.size(), -1}),
                                   "bench");
     }},
    {"broadcast",
     [](comm::Communicator& group, const at::Tensor& in, const at::Tensor&) {
       return group.broadcast({.data = in.mutable_data_ptr(),
                               .count = static_cast<std::uint64_t>(in.numel()),
                               .dtype = DType::f32,
                               .root = 0,
                               .stream = device::current_stream(in.device()),
                               .tag = "bench"});
     }},
    {"send_recv",
     [](comm::Communicator& group, const at::Tensor& in, const at::Tensor& out) {
       const int next = (group.rank() + 1) % group.size();
       const int previous = (group.rank() + group.size() - 1) % group.size();
       const std::array sends{comm::Message{next, in.mutable_data_ptr(), in.nbytes()}};
       const std::array receives{comm::Message{previous, out.mutable_data_ptr(), out.nbytes()}};
       return group.exchange({.sends = sends,
                              .receives = receives,
                              .stream = device::current_stream(in.device()),
                              .tag = "bench"});
     }},
}};

}  // namespace

std::vector<std::string> collective_names() {
  std::vector<std::string> names;
  for (const Operation& operation : kOperations) names.emplace_back(operation.name);
  return names;
}

double bus_factor(const std::string& op, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  if (op == "all_reduce") return 2 * others;
  return op == "broadcast" || op == "send_recv" ? 1 : others;
}

CollectiveTime measure_collective(comm::Communicator& control, comm::Communicator& world,
                                  at::Device device, const std::string& op, std::int64_t bytes,
                                  double seconds) {
  const auto operation = std::ranges::find(kOperations, op, &Operation::name);
  TRIREME_ASSERT(operation != kOperations.end());
  const std::int64_t step = kElement * world.size();
  const std::int64_t size = std::max(bytes / step, std::int64_t{1}) * step;
  const auto options = at::TensorOptions().dtype(at::kFloat).device(device);
  const at::Tensor in = at::zeros({size / kElement}, options);
  const at::Tensor out = at::zeros({size / kElement}, options);
  const auto mean_s = [&](int repetitions) {
    control.barrier();
    const Timer timer;
    for (int i = 0; i < repetitions; ++i) operation->start(world, in, out)->wait();
    device::finish_work(device);
    return comm::all_reduce_value(control, timer.seconds() / repetitions, comm::ReduceOp::sum,
                                  "bench") /
           control.size();
  };
  const double first_s = mean_s(kWarmUps);
  const int repetitions = std::clamp(static_cast<int>(seconds / std::max(first_s, 1e-9)),
                                     kLeastRepetitions, kMostRepetitions);
  return {op, size, mean_s(repetitions)};
}

std::vector<std::int64_t> collective_sizes(std::int64_t least, std::int64_t most) {
  std::vector<std::int64_t> sizes;
  for (std::int64_t size = least; size <= most; size *= 2) sizes.push_back(size);
  return sizes;
}

}  // namespace trireme::train
