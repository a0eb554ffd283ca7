#pragma once
#include <ATen/core/Tensor.h>

namespace trireme::device {

/// Lets LibTorch use only kernels that make a run with the same layout reproducible bit for bit:
/// kernels without atomics, one cuBLAS workspace, no algorithm search. If `deterministic` is false,
/// LibTorch may use faster kernels: cuDNN attention, and a backward pass of flash attention with
/// atomics. Does nothing for a CPU, because CPU kernels are deterministic.
///
/// Call it before the first operation on the device, because cuBLAS reads its part of the setting
/// with the first handle. A later call changes the other parts. Source: PyTorch's notes on
/// reproducibility.
void use_deterministic_kernels(at::Device device, bool deterministic = true);

/// While it exists, LibTorch may use kernels that are not deterministic. It is for operations with
/// the same result for every order, such as writes of different elements. If deterministic kernels
/// are off, it does nothing.
///
/// The setting belongs to the process, so no other thread may run operations on the GPU at the same
/// time. A CUDA graph keeps the kernels that were chosen during its capture.
class AllowAnyKernel {
 public:
  AllowAnyKernel();
  ~AllowAnyKernel();
  AllowAnyKernel(const AllowAnyKernel&) = delete;
  AllowAnyKernel& operator=(const AllowAnyKernel&) = delete;

 private:
  bool is_deterministic_;
  bool warns_only_;
};

/// Makes the bits of CPU matrix products independent of the number of threads. Call it before the
/// first product. Source: Intel oneMKL developer guide, conditional numerical reproducibility
/// (strict mode).
void use_thread_independent_products();

/// Keeps LibTorch from using attention of cuDNN, which builds a plan for each new pair of a batch
/// size and a length. It is for programs in which the lengths vary.
void avoid_cudnn_attention();

}  // namespace trireme::device
