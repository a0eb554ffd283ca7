#include "train/step/replica_sync.hpp"

#include <ATen/ATen.h>

#include <vector>

#include "parallel/collectives.hpp"

namespace trireme {

GradSummary ReplicaSync::summarize(const at::Tensor& loss_sum) const {
  return mesh_.trains_alone() ? summarize_own_grads(registry_, mesh_, loss_sum)
                              : summarize_grads(registry_, mesh_.world(), loss_sum);
}

void ReplicaSync::average() {
  const at::NoGradGuard no_grad;
  Communicator& dp = mesh_.group(Axis::dp);
  std::vector<at::Tensor> values;
  for (const std::size_t unit : registry_.layout().trained_units())
    values.push_back(registry_.main_part(unit));
  for (const OptimizerSlot& slot : optimizer_.slots()) values.push_back(slot.flat);
  std::vector<WorkPtr> works;
  for (at::Tensor& one : values) {
    if (one.device() == registry_.device()) {
      works.push_back(all_reduce(dp, one, ReduceOp::sum, "average"));
      continue;
    }
    at::Tensor on_device = one.to(registry_.device());  // offloaded values: one by one
    all_reduce(dp, on_device, ReduceOp::sum, "average")->wait();
    one.copy_(on_device);
  }
  for (const WorkPtr& work : works) work->wait();
  for (at::Tensor& one : values) one.div_(dp.size());
  registry_.refresh_trained();
  differ_ = false;
}

}  // namespace trireme
