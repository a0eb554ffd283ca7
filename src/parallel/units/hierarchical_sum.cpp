#include "parallel/units/hierarchical_sum.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "parallel/collectives.hpp"

namespace trireme {
namespace {

at::Tensor own_part(const at::Tensor& values, const Communicator& node) {
  const std::int64_t size = values.numel() / node.size();
  return values.narrow(0, size * node.rank(), size);
}

}  // namespace

void HierarchicalSum::add(const at::Tensor& values) {
  advance();
  in_flight_.add(reduce_scatter(node_, values, own_part(values, node_), "grads in node"));
  scattered_ = values;
}

void HierarchicalSum::finish() {
  while (scattered_.defined() || summed_.defined()) advance();
}

void HierarchicalSum::advance() {
  in_flight_.wait_for_all_but(0);
  if (summed_.defined())
    in_flight_.add(all_gather(node_, own_part(summed_, node_), summed_, "grads in node"));
  if (scattered_.defined())
    in_flight_.add(
        all_reduce(across_, own_part(scattered_, node_), ReduceOp::sum, "grads across nodes"));
  summed_ = std::exchange(scattered_, {});
}

}  // namespace trireme
