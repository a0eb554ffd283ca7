#pragma once
#include <cstdint>

/// Arguments of the kernels in gated_activation.cu. A block processes one row.
namespace trireme::ops::cuda {

struct GatedForward {
  const void* gate_up;  // [rows, 2 width]: the gates, then the inputs that they multiply
  void* y;              // [rows, width]
  std::int64_t stride;  // between the rows of gate_up
  std::int64_t width;
  std::int64_t activation;  // the index in ops/activations.hpp
};

struct GatedBackward {
  const void* grad_y;   // [rows, width]
  const void* gate_up;  // like GatedForward::gate_up
  void* grad_gate_up;   // [rows, 2 width]
  void* y;              // [rows, width], or null: not computed
  std::int64_t stride;
  std::int64_t width;
  std::int64_t activation;
};

}  // namespace trireme::ops::cuda
