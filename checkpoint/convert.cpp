#include "checkpoint/convert.hpp"

#include <bit>
#include <cstring>

#include "core/error.hpp"

namespace trireme {
namespace {

template <class T>
T read_as(const std::byte* at) {
  T value{};
  std::memcpy(&value, at, sizeof value);
  return value;
}

template <class T>
void write_as(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

float load_float(DType dtype, const std::byte* at) {
  switch (dtype) {
    case DType::f64:
      return static_cast<float>(read_as<double>(at));
    case DType::f32:
      return read_as<float>(at);
    case DType::bf16:
      return from_bf16_bits(read_as<std::uint16_t>(at));
    case DType::f16:
      return from_f16_bits(read_as<std::uint16_t>(at));
    default:
      fail(ErrorKind::internal, "no conversion from ", dtype_name(dtype));
  }
}

void store_float(DType dtype, std::byte* at, float value) {
  switch (dtype) {
    case DType::f64:
      return write_as(at, static_cast<double>(value));
    case DType::f32:
      return write_as(at, value);
    case DType::bf16:
      return write_as(at, to_bf16_bits(value));
    case DType::f16:
      return write_as(at, to_f16_bits(value));
    default:
      fail(ErrorKind::internal, "no conversion to ", dtype_name(dtype));
  }
}

/// value >> shift, rounded to nearest, ties to even.
std::uint32_t shift_rounded(std::uint32_t value, int shift) {
  const std::uint32_t kept = value >> shift;
  const std::uint32_t rest = value & ((1U << shift) - 1);
  const std::uint32_t half = 1U << (shift - 1);
  return kept + (rest > half || (rest == half && (kept & 1U) != 0) ? 1U : 0U);
}

}  // namespace

std::uint16_t to_f16_bits(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = bits >> 16 & 0x8000U;
  const std::uint32_t magnitude = bits & 0x7fffffffU;
  const auto with_sign = [&](std::uint32_t half) {
    return static_cast<std::uint16_t>(sign | half);
  };
  if (magnitude > 0x7f800000U) return with_sign(0x7e00U | (magnitude >> 13 & 0x1ffU));
  const int exponent = static_cast<int>(magnitude >> 23) - 127;
  if (exponent >= 16) return with_sign(0x7c00U);
  if (exponent >= -14) {
    // A carry out of the mantissa steps the exponent, up to infinity, as it should.
    return with_sign(shift_rounded(magnitude - (112U << 23), 13));
  }
  if (exponent < -25) return with_sign(0);
  const std::uint32_t mantissa = (magnitude & 0x7fffffU) | 0x800000U;  // subnormal: units of 2^-24
  return with_sign(shift_rounded(mantissa, -exponent - 1));
}

float from_f16_bits(std::uint16_t bits) noexcept {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16;
  const std::uint32_t exponent = bits >> 10 & 0x1fU;
  const std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1.0p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  const std::uint32_t wide = exponent == 31 ? 255U : exponent + 112U;
  return std::bit_cast<float>(sign | wide << 23 | mantissa << 13);
}

void convert_floats(DType from,
                    std::span<const std::byte> source,
                    DType to,
                    std::span<std::byte> target) {
  const std::size_t count = source.size() / size_of(from);
  TRIREME_ASSERT(count * size_of(from) == source.size() && count * size_of(to) == target.size());
  if (from == to) {
    std::copy(source.begin(), source.end(), target.begin());
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    store_float(
        to, target.data() + i * size_of(to), load_float(from, source.data() + i * size_of(from)));
  }
}

}  // namespace trireme
