#include "device/precision.hpp"

#include "core/error.hpp"

namespace trireme::device {

ParamDTypes precision_dtypes(const std::string& precision, std::string_view setting) {
  if (precision == "fp32") return {at::kFloat, at::kFloat};
  if (precision == "fp64") return {at::kDouble, at::kDouble};
  if (precision == "bf16") return {at::kBFloat16, at::kFloat};
  if (precision == "fp16") return {at::kHalf, at::kFloat};
  fail(ErrorKind::usage, "{} {}, must be fp32, bf16, fp16 or fp64", setting, precision);
}

}  // namespace trireme::device
