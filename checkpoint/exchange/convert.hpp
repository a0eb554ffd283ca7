#pragma once
#include <cstddef>
#include <span>
#include <string_view>

#include "core/dtype.hpp"

namespace trireme::checkpoint {

/// Returns true for f64, f32, bf16 and f16.
bool is_float(DType dtype) noexcept;

/// Converts floating-point elements between f64, f32, bf16 and f16. Widening is exact; narrowing
/// rounds once, to nearest even. Throws Error(internal) for other dtypes or sizes that do not
/// match.
void convert_floats(DType from, std::span<const std::byte> source, DType to,
                    std::span<std::byte> target);

/// Throws Error(data) naming the tensor if one of its f16 elements is infinite, because its value
/// was above 65504.
void check_f16_range(std::string_view tensor, std::span<const std::byte> elements);

}  // namespace trireme::checkpoint
