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

/// bfloat16 as its bits: round to nearest even, NaN stays NaN.
constexpr std::uint16_t to_bf16_bits(float value) noexcept {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>((bits >> 16) | 0x40U);
  return static_cast<std::uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

constexpr float from_bf16_bits(std::uint16_t bits) noexcept {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}

}  // namespace trireme
