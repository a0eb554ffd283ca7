/// Compares decoding steps that are launched as CUDA graphs with steps without graphs, on a GPU.

#include <gtest/gtest.h>

#include "device/device.hpp"
#include "unit/generate/decode_steps.hpp"

namespace trireme::testing {
namespace {

TEST(GpuGraphs, LaunchedDecodingStepsEqualStepsWithoutGraphs) {
  const at::Device gpu = device::choose_device("cuda", 0);
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16}) {
    const TwoWays steps = decode_two_ways({.dtype = dtype, .device = gpu});
    // Products of another number of rows, which cuBLAS may compute with another algorithm.
    EXPECT_LT(steps.difference, dtype == at::kFloat ? 1e-3 : 5e-2) << dtype;
    EXPECT_GT(steps.num_launches, steps.num_steps / 2) << dtype << ": graphs were given up";
  }
}

}  // namespace
}  // namespace trireme::testing
