#pragma once
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace trireme {

/// Element types of buffers, files and messages. Names in files: "f32", "bf16", ...
enum class DType : std::uint8_t { f64, f32, bf16, f16, i64, i32, i16, i8, u64, u32, u16, u8 };

std::size_t size_of(DType dtype) noexcept;
std::string_view dtype_name(DType dtype) noexcept;
std::optional<DType> dtype_from_name(std::string_view name) noexcept;

/// Converts to bfloat16 bits: rounds to nearest even and keeps NaN.
constexpr std::uint16_t to_bf16_bits(float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float from_bf16_bits(std::uint16_t bits) noexcept {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}

/// Converts f16 to f32 by one exact multiplication, which also handles subnormals.
inline float from_f16_bits(std::uint16_t half) noexcept {
  const std::uint32_t sign = (half & 0x8000U) << 16;
  const std::uint32_t magnitude = half & 0x7fffU;
  const float scaled =
      __builtin_bit_cast(float, magnitude << 13) * 0x1.0p112F;  // 2^(127-15) re-bases the exponent
  const std::uint32_t finite = __builtin_bit_cast(std::uint32_t, scaled);
  const std::uint32_t special =
      (magnitude << 13) | 0x7f800000U;  // infinity and NaN keep their payload
  return __builtin_bit_cast(float, sign | (magnitude >= 0x7c00U ? special : finite));
}

/// Converts f32 to f16, rounding to nearest even. For subnormal halves, adding a suitable float
/// rounds at the half's last bit. Normal halves are rounded in integer arithmetic.
inline std::uint16_t to_f16_bits(float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t sign = (bits >> 16) & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const float shifted = __builtin_bit_cast(float, magnitude) + 0.5F;  // 0.5: its last bit is 2^-24
  const std::uint32_t subnormal = __builtin_bit_cast(std::uint32_t, shifted) - 0x3f000000U;
  const std::uint32_t normal = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  const std::uint32_t finite = magnitude < 0x38800000U ? subnormal : normal;
  const std::uint32_t special = magnitude > 0x7f800000U ? 0x7e00U : 0x7c00U;
  return static_cast<std::uint16_t>(
      sign | (magnitude >= 0x47800000U ? special : (finite < 0x7c00U ? finite : 0x7c00U)));
}

}  // namespace trireme
