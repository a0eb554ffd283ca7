#pragma once
#include <cstddef>
#include <span>

#include "core/dtype.hpp"

namespace trireme {

/// f64, f32, bf16 or f16.
bool is_float(DType dtype) noexcept;

/// Converts floating-point elements; f64, f32, bf16 and f16 each way. Exact when widening, rounded
/// once, to nearest even, when narrowing. Throws Error(internal) for other dtypes or sizes that do not match.
void convert_floats(DType from, std::span<const std::byte> source, DType to,
                    std::span<std::byte> target);

}  // namespace trireme
