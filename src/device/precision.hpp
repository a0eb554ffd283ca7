#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace trireme {

/// The dtypes of the weights that the model computes with and of the master copy that the optimizer updates.
struct ParamDTypes {
  at::ScalarType compute = at::kFloat;
  at::ScalarType main = at::kFloat;  // also of main gradients and optimizer state
};

/// "fp32" -> {float, float}, "bf16" -> {bfloat16, float}, ... Throws Error(usage)
/// naming the allowed; `setting`: what the user gave it with, "--precision".
ParamDTypes precision_dtypes(const std::string& precision,
                             std::string_view setting = "train.precision =");

}  // namespace trireme
