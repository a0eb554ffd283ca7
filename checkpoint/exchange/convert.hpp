#pragma once
#include <cstddef>
#include <span>

#include "core/dtype.hpp"

namespace trireme::checkpoint {

/// Returns true for f64, f32, bf16 and f16.
bool is_float(DType dtype) noexcept;

/// Converts floating-point elements between f64, f32, bf16 and f16. Widening is exact; narrowing
/// rounds once, to nearest even. Throws Error(internal) for other dtypes or sizes that do not
/// match.
void convert_floats(DType from, std::span<const std::byte> source, DType to,
                    std::span<std::byte> target);

}  // namespace trireme::checkpoint
