#include "device/torch_bridge.hpp"

#ifdef TRIREME_HAVE_CUDA
#include <c10/cuda/CUDAStream.h>
#endif

#include <array>
#include <utility>

#include "core/error.hpp"

namespace trireme::device {
namespace {

constexpr std::array<std::pair<at::ScalarType, DType>, 9> kTypes{{{at::kDouble, DType::f64},
                                                                  {at::kFloat, DType::f32},
                                                                  {at::kBFloat16, DType::bf16},
                                                                  {at::kHalf, DType::f16},
                                                                  {at::kLong, DType::i64},
                                                                  {at::kInt, DType::i32},
                                                                  {at::kShort, DType::i16},
                                                                  {at::kChar, DType::i8},
                                                                  {at::kByte, DType::u8}}};

}  // namespace

DType to_dtype(at::ScalarType type) {
  for (const auto& [scalar, dtype] : kTypes) {
    if (scalar == type) return dtype;
  }
  fail(ErrorKind::internal, "no DType for {}", c10::toString(type));
}

at::ScalarType to_scalar_type(DType dtype) {
  for (const auto& [scalar, ours] : kTypes) {
    if (ours == dtype) return scalar;
  }
  fail(ErrorKind::internal, "no LibTorch type for {}", dtype_name(dtype));
}

comm::Stream current_stream(at::Device device) {
#ifdef TRIREME_HAVE_CUDA
  if (device.is_cuda()) return {c10::cuda::getCurrentCUDAStream(device.index()).stream()};
#endif
  TRIREME_ASSERT(!device.is_cuda());
  return {};
}

}  // namespace trireme::device
