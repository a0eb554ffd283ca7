#include "ops/path.hpp"

#ifdef TRIREME_HAVE_CUDA
#include <c10/cuda/CUDAException.h>
#endif

#include <algorithm>
#include <array>

#include "ops/fast.hpp"

namespace trireme::ops {
namespace {

/// A device whose kernels are ours, and the dtypes that they take.
struct DeviceRow {
  at::DeviceType device;
  std::array<at::ScalarType, 2> dtypes;
  const kernels::Table& (*table)();
};

/// One row for each folder of kernels (cpu/).
constexpr std::array kDevices{
    DeviceRow{at::kCPU, {at::kFloat, at::kBFloat16}, kernels::table},
};

}  // namespace

const kernels::Table* device_kernels(Path path, const at::Tensor& x) {
  if (path != Path::fast) return nullptr;
  for (const DeviceRow& row : kDevices) {
    const bool takes_dtype =
        std::find(row.dtypes.begin(), row.dtypes.end(), x.scalar_type()) != row.dtypes.end();
    if (row.device == x.device().type() && takes_dtype) return &row.table();
  }
  return nullptr;
}

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
