#include "device/kernel_choice.hpp"

#include <ATen/Context.h>

#include <cstdlib>

namespace trireme::device {

void use_deterministic_kernels(at::Device device, bool deterministic) {
  // ATen's CPU kernels and the native CPU kernels have no such settings
  if (!device.is_cuda()) return;
  if (deterministic)
    ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);  // read with the first handle
  at::Context& context = at::globalContext();
  context.setDeterministicAlgorithms(deterministic, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);
  context.setDeterministicCuDNN(deterministic);
  context.setBenchmarkCuDNN(false);
}

AllowAnyKernel::AllowAnyKernel()
    : is_deterministic_(at::globalContext().deterministicAlgorithms()),
      warns_only_(at::globalContext().deterministicAlgorithmsWarnOnly()) {
  if (is_deterministic_) at::globalContext().setDeterministicAlgorithms(false, false);
}

AllowAnyKernel::~AllowAnyKernel() {
  if (is_deterministic_) at::globalContext().setDeterministicAlgorithms(true, warns_only_);
}

void use_thread_independent_products() {
  ::setenv("MKL_CBWR", "AUTO,STRICT", /*overwrite=*/0);  // read with the first product
}

void avoid_cudnn_attention() {
  at::globalContext().setSDPUseCuDNN(false);
}

}  // namespace trireme::device
