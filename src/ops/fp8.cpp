#include "ops/fp8.hpp"

#include <ATen/ATen.h>

#include "core/error.hpp"
#include "core/operation_record.hpp"
#include "ops/cuda/fp8.hpp"
#include "ops/operations.hpp"

#ifdef TRIREME_HAVE_CUDA
#include <ATen/ops/_scaled_mm.h>
#include <c10/cuda/CUDAException.h>
#endif

namespace trireme::ops {
namespace {

/// The first compute capability with fp8 products: Ada.
constexpr int kFp8Capability = 89;

/// Returns max(high, -low) in fp32, which needs no tensor of absolute values.
at::Tensor largest_of(const std::tuple<at::Tensor, at::Tensor>& low_and_high) {
  const auto& [low, high] = low_and_high;
  return at::maximum(high, low.neg()).to(at::kFloat);
}

#ifdef TRIREME_HAVE_CUDA
/// Appends columns of zeros until their number is divisible by 16.
at::Tensor padded(const at::Tensor& codes) {
  const std::int64_t missing = (kFp8Divisor - codes.size(1) % kFp8Divisor) % kFp8Divisor;
  if (missing == 0) return codes;
  return at::constant_pad_nd(codes.view(at::kByte), {0, missing}).view(codes.scalar_type());
}
#endif

at::Tensor reference_product(const Fp8Matrix& a, const Fp8Matrix& b, at::ScalarType result) {
  const at::Tensor sums = a.codes.to(at::kFloat).mm(b.codes.to(at::kFloat).t());
  const at::Tensor of_columns = b.inverse_scale.dim() == 2 ? b.inverse_scale.t() : b.inverse_scale;
  return sums.mul_(a.inverse_scale).mul_(of_columns).to(result);
}

at::Tensor plain_amax(const at::Tensor& x) {
  return largest_of(at::aminmax(x));
}

at::Tensor plain_row_amax(const at::Tensor& x) {
  return largest_of(at::aminmax(x, 1, /*keepdim=*/true));
}

at::Tensor plain_scale(const at::Tensor& amax, at::ScalarType format, bool power_of_two) {
  // The quotient is rounded once, on every device.
  const at::Tensor wide = amax.to(at::kDouble).clamp_min(kLeastFp8Amax);
  const at::Tensor scale = wide.reciprocal().mul_(largest_fp8(format)).to(at::kFloat);
  if (!power_of_two) return scale;
  constexpr int kExponentBits = 0x7f800000;
  const at::Tensor power = scale.view(at::kInt).bitwise_and(kExponentBits).view(at::kFloat);
  return power.where(scale.isfinite(), scale);  // the scale of a NaN has other bits
}

/// Without a scale, those codes are not wanted.
Fp8Both plain_quantize(const at::Tensor& x, const at::Tensor& row_scale,
                       const at::Tensor& column_scale, at::ScalarType format) {
  const double largest = largest_fp8(format);
  const auto quantized = [&](const at::Tensor& rows, const at::Tensor& scale) -> Fp8Matrix {
    if (!scale.defined()) return {};
    // A scale with dimensions makes the product fp32 in one pass; a scalar tensor would not.
    const at::Tensor scaled = rows.mul(scale.view({-1, 1})).clamp_(-largest, largest);
    return {scaled.to(format).contiguous(), scale.reciprocal()};
  };
  return {quantized(x, row_scale), quantized(x.t(), column_scale)};
}

struct Fp8Row {
  bool (*accepts)(const at::Tensor& x);
  decltype(&plain_amax) amax;
  decltype(&plain_row_amax) row_amax;
  decltype(&plain_scale) scale;
  decltype(&plain_quantize) quantize;
};

constexpr std::array kFp8{
    Fp8Row{cuda::accepts_fp8, cuda::fp8_amax, cuda::fp8_row_amax, cuda::fp8_scale,
           cuda::quantize_fp8},
    Fp8Row{nullptr, plain_amax, plain_row_amax, plain_scale, plain_quantize},
};

const Fp8Row& fp8_row(Path path, const at::Tensor& x) {
  return choose(path_of(Operation::fp8, path), kFp8, x);
}

}  // namespace

double largest_fp8(at::ScalarType format) {
  TRIREME_ASSERT(format == at::kFloat8_e4m3fn || format == at::kFloat8_e5m2);
  return format == at::kFloat8_e4m3fn ? 448 : 57344;
}

at::Tensor amax_of(const at::Tensor& x, Path path) {
  return fp8_row(path, x).amax(x);
}

at::Tensor row_amax_of(const at::Tensor& x, Path path) {
  return fp8_row(path, x).row_amax(x);
}

at::Tensor fp8_scale(const at::Tensor& amax, at::ScalarType format, bool power_of_two, Path path) {
  return fp8_row(path, amax).scale(amax, format, power_of_two);
}

Fp8Matrix quantize_fp8(const at::Tensor& x, const at::Tensor& scale, at::ScalarType format,
                       Path path) {
  return fp8_row(path, x).quantize(x, scale, {}, format).by_rows;
}

Fp8Both quantize_fp8_both(const at::Tensor& x, const at::Tensor& row_scale,
                          const at::Tensor& column_scale, at::ScalarType format, Path path) {
  return fp8_row(path, x).quantize(x, row_scale, column_scale, format);
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
