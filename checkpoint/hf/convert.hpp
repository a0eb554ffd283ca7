#pragma once
#include <cstddef>
#include <span>

#include "core/dtype.hpp"

namespace trireme {

/// Converts floating-point elements; f64, f32, bf16 and f16 each way, through f32 (f64 to f64 is a
/// copy). Exact when widening. Throws Error(internal) for other dtypes or sizes that do not match.
void convert_floats(DType from, std::span<const std::byte> source, DType to,
                    std::span<std::byte> target);

}  // namespace trireme
