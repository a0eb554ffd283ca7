#pragma once
#include <ATen/core/Tensor.h>

#include <span>

#include "comm/communicator.hpp"

namespace trireme {

/// In place: the mean over the ranks of `group`, added in rank order. Each of `values` is
/// contiguous; those that do not lie on `device`, the group's, go there and back one by one.
void average(Communicator& group, std::span<const at::Tensor> values, at::Device device);

}  // namespace trireme
