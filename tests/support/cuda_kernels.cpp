/// Compiles all CUDA kernels for the host.
#include "support/cuda_block.hpp"
#include "support/cuda_launcher.hpp"
//
#include "ops/cuda/column_sums.hpp"
#include "ops/cuda/kernels/column_sums.cu"
#include "ops/cuda/kernels/rms_norm.cu"
#include "ops/cuda/rms_norm.hpp"

namespace trireme::testing {

using namespace ops::cuda;

HostLauncher::HostLauncher() {
  add(kColumnSums, column_sums<float>);
  add(kRmsNormForward, rms_norm_forward<Bf16>, rms_norm_forward<Half>, rms_norm_forward<float>);
  add(kRmsNormBackward, rms_norm_backward<Bf16>, rms_norm_backward<Half>, rms_norm_backward<float>);
  set_launcher(this);
}

}  // namespace trireme::testing
