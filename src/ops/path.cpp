#include "ops/path.hpp"

#ifdef TRIREME_HAVE_CUDA
#include <c10/cuda/CUDAException.h>
#endif

namespace trireme::ops {

at::ScalarType accumulate_type(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
}

int cuda_generation([[maybe_unused]] at::Device device) {
  int major = 0;
#ifdef TRIREME_HAVE_CUDA
  if (device.is_cuda())
    C10_CUDA_CHECK(
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.index()));
#endif
  return major;
}

}  // namespace trireme::ops
