#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/dtype.hpp"

namespace trireme {

/// IEEE half precision as its bits: round to nearest even, overflow to infinity, NaN stays NaN,
/// subnormals kept.
std::uint16_t to_f16_bits(float value) noexcept;
float from_f16_bits(std::uint16_t bits) noexcept;

/// Converts floating-point elements; f64, f32, bf16 and f16 each way, through f32 (f64 to f64 is a
/// copy). Exact when widening. Throws Error(internal) for other dtypes or sizes that do not match.
void convert_floats(DType from,
                    std::span<const std::byte> source,
                    DType to,
                    std::span<std::byte> target);

}  // namespace trireme
