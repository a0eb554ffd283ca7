#pragma once
#include <array>

#include "ops/cuda/kernel.hpp"
#include "ops/cuda/kernels/fp8.hpp"
#include "ops/fp8.hpp"

/// The cuda row of ops/fp8.cpp.
namespace trireme::ops::cuda {

inline constexpr KernelOf<Fp8Amax> kFp8Amax{{"fp8_amax", "fp8", "Fp8Amax"}};
inline constexpr KernelOf<Fp8Amax> kFp8ColumnAmax{
    {"fp8_column_amax", "fp8", "Fp8Amax", kFp8Threads}};
inline constexpr KernelOf<Fp8Scales> kFp8Scales{
    {"fp8_scales", "fp8", "Fp8Scales", kFp8Threads, /*fp32_only=*/true}};
inline constexpr KernelOf<QuantizeFp8> kQuantizeFp8{
    {"quantize_fp8", "fp8", "QuantizeFp8", kFp8Threads}};
inline constexpr std::array<const Kernel*, 4> kFp8Kernels{&kFp8Amax, &kFp8ColumnAmax, &kFp8Scales,
                                                          &kQuantizeFp8};

bool accepts_fp8(const at::Tensor& x);
at::Tensor fp8_amax(const at::Tensor& x);
at::Tensor fp8_row_amax(const at::Tensor& x);
at::Tensor fp8_scale(const at::Tensor& amax, at::ScalarType format, bool power_of_two);

/// Appends columns of zeros to the transposed codes until their number is divisible by 16.
Fp8Both quantize_fp8(const at::Tensor& x, const at::Tensor& row_scale,
                     const at::Tensor& column_scale, at::ScalarType format);

}  // namespace trireme::ops::cuda
