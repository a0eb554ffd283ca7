/// Compiles all CUDA kernels for the host.
#include "support/cuda_block.hpp"  // first: it defines the CUDA names

// clang-format off
#include "cuda_kernel_sources.hpp"  // made by src/ops/CMakeLists.txt
// clang-format on

#include "support/cuda_launcher.hpp"

namespace trireme::testing {

using namespace ops::cuda;

HostLauncher::HostLauncher() {
  add(kAdamW, adamw<Bf16>, adamw<Half>, adamw<float>);
  add(kAddWords, add_words<float>);
  add(kBlockSquares, block_squares<float>);
  add(kClipFactor, clip_factor<float>);
  add(kColumnSums, column_sums<float>);
  add(kCrossEntropy, cross_entropy<Bf16>, cross_entropy<Half>, cross_entropy<float>);
  add(kClassStatistics, class_statistics<Bf16>, class_statistics<Half>, class_statistics<float>);
  add(kClassGradient, class_gradient<Bf16>, class_gradient<Half>, class_gradient<float>);
  add(kDropout, dropout<Bf16>, dropout<Half>, dropout<float>);
  add(kEmbeddingRuns, embedding_runs<float>);
  add(kEmbeddingSegments, embedding_segments<Bf16>, embedding_segments<Half>,
      embedding_segments<float>);
  add(kFp8Amax, fp8_amax<Bf16>, fp8_amax<Half>, fp8_amax<float>);
  add(kFp8ColumnAmax, fp8_column_amax<Bf16>, fp8_column_amax<Half>, fp8_column_amax<float>);
  add(kFp8Scales, fp8_scales<float>);
  add(kGatedForward, gated_forward<Bf16>, gated_forward<Half>, gated_forward<float>);
  add(kGatedBackward, gated_backward<Bf16>, gated_backward<Half>, gated_backward<float>);
  add(kHeadsForward, heads_forward<Bf16>, heads_forward<Half>, heads_forward<float>);
  add(kHeadsBackward, heads_backward<Bf16>, heads_backward<Half>, heads_backward<float>);
  add(kQuantizeFp8, quantize_fp8<Bf16>, quantize_fp8<Half>, quantize_fp8<float>);
  add(kRmsNormForward, rms_norm_forward<Bf16>, rms_norm_forward<Half>, rms_norm_forward<float>);
  add(kRmsNormBackward, rms_norm_backward<Bf16>, rms_norm_backward<Half>, rms_norm_backward<float>);
  set_launcher(this);
}

}  // namespace trireme::testing
