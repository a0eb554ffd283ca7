#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <string_view>

namespace trireme::device {

/// The dtypes of the model's weights and of the master weights that the optimizer updates.
struct ParamDTypes {
  at::ScalarType compute = at::kFloat;
  at::ScalarType main = at::kFloat;  // also for master gradients and optimizer state
};

/// Parses a precision: "fp32" is {float, float}, "bf16" is {bfloat16, float}. Throws Error(usage)
/// with the allowed values; `setting` names the option in the error, for example "--precision".
ParamDTypes precision_dtypes(const std::string& precision,
                             std::string_view setting = "train.precision =");

}  // namespace trireme::device
