#include "parallel/units/average.hpp"

#include <ATen/ATen.h>

#include <vector>

#include "parallel/collectives.hpp"

namespace trireme {

void average(Communicator& group, std::span<const at::Tensor> values, at::Device device) {
  if (group.size() == 1) return;
  const at::NoGradGuard no_grad;
  std::vector<WorkPtr> works;
  for (const at::Tensor& one : values) {
    if (one.device() == device) {
      works.push_back(all_reduce(group, one, ReduceOp::sum, "average"));
      continue;
    }
    at::Tensor there = one.to(device);
    all_reduce(group, there, ReduceOp::sum, "average")->wait();
    at::Tensor(one).copy_(there);
  }
  for (const WorkPtr& work : works) work->wait();
  for (const at::Tensor& one : values) at::Tensor(one).div_(group.size());
}

}  // namespace trireme
