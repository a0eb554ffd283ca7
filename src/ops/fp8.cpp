#include "ops/fp8.hpp"

#include <ATen/ATen.h>

#include "core/error.hpp"
#include "core/operation_record.hpp"
#include "ops/path.hpp"

#ifdef TRIREME_HAVE_CUDA
#include <ATen/ops/_scaled_mm.h>
#include <c10/cuda/CUDAException.h>
#endif

namespace trireme::ops {
namespace {

/// Scales stay finite below this amax, which is the limit of torchao.float8.
constexpr double kLeastAmax = 1e-12;
/// The first compute capability with fp8 products: Ada.
constexpr int kFp8Capability = 89;

double largest_value(at::ScalarType format) {
  TRIREME_ASSERT(format == at::kFloat8_e4m3fn || format == at::kFloat8_e5m2);
  return format == at::kFloat8_e4m3fn ? 448 : 57344;
}

/// Returns max(high, -low) in fp32, which needs no tensor of absolute values.
at::Tensor largest_of(const std::tuple<at::Tensor, at::Tensor>& low_and_high) {
  const auto& [low, high] = low_and_high;
  return at::maximum(high, low.neg()).to(at::kFloat);
}

#ifdef TRIREME_HAVE_CUDA
/// Appends columns of zeros until their number is divisible by 16.
at::Tensor padded(const at::Tensor& codes) {
  constexpr std::int64_t kColumns = 16;
  const std::int64_t missing = (kColumns - codes.size(1) % kColumns) % kColumns;
  if (missing == 0) return codes;
  return at::constant_pad_nd(codes.view(at::kByte), {0, missing}).view(codes.scalar_type());
}
#endif

at::Tensor reference_product(const Fp8Matrix& a, const Fp8Matrix& b, at::ScalarType result) {
  const at::Tensor sums = a.codes.to(at::kFloat).mm(b.codes.to(at::kFloat).t());
  const at::Tensor of_columns = b.inverse_scale.dim() == 2 ? b.inverse_scale.t() : b.inverse_scale;
  return sums.mul_(a.inverse_scale).mul_(of_columns).to(result);
}

}  // namespace

at::Tensor amax_of(const at::Tensor& x) {
  return largest_of(at::aminmax(x));
}

at::Tensor row_amax_of(const at::Tensor& x) {
  return largest_of(at::aminmax(x, 1, /*keepdim=*/true));
}

at::Tensor fp8_scale(const at::Tensor& amax, at::ScalarType format, bool power_of_two) {
  // The quotient is rounded once, on every device.
  const at::Tensor wide = amax.to(at::kDouble).clamp_min(kLeastAmax);
  const at::Tensor scale = wide.reciprocal().mul_(largest_value(format)).to(at::kFloat);
  return power_of_two ? scale.log2().floor_().exp2_() : scale;
}

Fp8Matrix quantize_fp8(const at::Tensor& x, const at::Tensor& scale, at::ScalarType format) {
  const double largest = largest_value(format);
  // A scale with dimensions makes the product fp32 in one pass; a scalar tensor would not.
  const at::Tensor scaled = x.mul(scale.view({-1, 1})).clamp_(-largest, largest);
  return {scaled.to(format).contiguous(), scale.reciprocal()};
}

at::Tensor fp8_product(const Fp8Matrix& a, const Fp8Matrix& b, at::ScalarType result,
                       [[maybe_unused]] bool fast_sums) {
  const at::NoGradGuard no_grad;
  const ProductMark mark(StepWork::matmul_forward, 2.0 * static_cast<double>(a.codes.numel()) *
                                                       static_cast<double>(b.codes.size(0)));
#ifdef TRIREME_HAVE_CUDA
  if (a.codes.is_cuda()) {
    // The first factor is row-major, the second one column-major.
    return at::_scaled_mm(padded(a.codes), padded(b.codes).t(), a.inverse_scale,
                          b.inverse_scale.dim() == 2 ? b.inverse_scale.t() : b.inverse_scale, {},
                          {}, result, fast_sums);
  }
#endif
  return reference_product(a, b, result);
}

int cuda_capability([[maybe_unused]] at::Device device) {
  int minor = 0;
#ifdef TRIREME_HAVE_CUDA
  if (device.is_cuda())
    C10_CUDA_CHECK(
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device.index()));
#endif
  return 10 * cuda_generation(device) + minor;
}

std::string fp8_device_mistake(std::string_view mode, std::string_view device_name,
                               int capability) {
  if (mode == "off" || capability == 0 || capability >= kFp8Capability) return "";
  return formatted(
      "train.fp8 = {} needs a GPU of compute capability 8.9 or later (Ada, Hopper, Blackwell), but {} has {}.{}. Set train.fp8 = off, or use another GPU.",
      mode, device_name, capability / 10, capability % 10);
}

}  // namespace trireme::ops
