#pragma once
#include <ATen/core/Tensor.h>

#include <optional>
#include <string>

namespace trireme::train {

/// Memory of a device after a capture, in bytes.
struct GraphMemory {
  double graphs = 0;  // the pool of all graphs
  double left = 0;    // free memory, without the cache of the allocator
  double total = 0;
};

/// Throws Error(resource) if graphs take too much memory: with mode auto more than a tenth of the
/// device, or so much that a micro-batch without a graph has too little.
void check_graph_memory(const GraphMemory& memory, const std::string& mode);

/// Compares the loss and the gradients of a launched graph with the expected ones. Returns the
/// difference as text; "" if rounding explains it; nullopt if the expected gradients are not finite,
/// or only zeros.
std::optional<std::string> graph_difference(const at::Tensor& expected_grads,
                                            const at::Tensor& difference_of_grads,
                                            const at::Tensor& expected_loss, const at::Tensor& loss,
                                            double bound);

}  // namespace trireme::train
