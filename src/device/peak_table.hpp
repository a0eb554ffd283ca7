#pragma once
#include <c10/core/ScalarType.h>

#include <string_view>

namespace trireme::device {

/// Returns the dense peak of the GPU with this CUDA device name ("NVIDIA A100-SXM4-80GB") in
/// FLOP/s, from its data sheet: of the tensor cores with fp32 accumulation for bf16 and fp16, of
/// the vector units for fp32, because matrix products do not use TF32. Returns 0 for an unknown
/// name or another dtype.
double data_sheet_flops(std::string_view name, at::ScalarType compute);

}  // namespace trireme::device
