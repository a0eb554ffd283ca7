#include "checkpoint/exchange/convert.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/dtype.hpp"
#include "core/error.hpp"

namespace trireme::checkpoint {
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

/// Rounds towards zero and sets the last bit if the result is inexact. Rounding the result again to
/// bf16 or f16 gives the same value as rounding `value` once. Source: Boldo, Melquiond, "When
/// double rounding is odd", 2005.
float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (std::isnan(value) || static_cast<double>(nearest) == value) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1U);
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
      fail(ErrorKind::internal, "no conversion from {}", dtype_name(dtype));
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
      fail(ErrorKind::internal, "no conversion to {}", dtype_name(dtype));
  }
}

}  // namespace

bool is_float(DType dtype) noexcept {
  return dtype == DType::f64 || dtype == DType::f32 || dtype == DType::bf16 || dtype == DType::f16;
}

void convert_floats(DType from, std::span<const std::byte> source, DType to,
                    std::span<std::byte> target) {
  const std::size_t count = source.size() / size_of(from);
  TRIREME_ASSERT(count * size_of(from) == source.size() && count * size_of(to) == target.size());
  if (from == to) {
    std::copy(source.begin(), source.end(), target.begin());
    return;
  }
  if (from == DType::f64 && (to == DType::bf16 || to == DType::f16)) {
    for (std::size_t i = 0; i < count; ++i) {
      store_float(to, target.data() + i * size_of(to),
                  rounded_to_odd(read_as<double>(source.data() + i * size_of(from))));
    }
    return;
  }
  for (std::size_t i = 0; i < count; ++i) {
    store_float(to, target.data() + i * size_of(to),
                load_float(from, source.data() + i * size_of(from)));
  }
}

void check_f16_range(std::string_view tensor, std::span<const std::byte> elements) {
  constexpr std::uint16_t kWithoutSign = 0x7fff;
  constexpr std::uint16_t kInfinity = 0x7c00;
  for (std::size_t at = 0; at < elements.size(); at += sizeof(std::uint16_t)) {
    if ((read_as<std::uint16_t>(&elements[at]) & kWithoutSign) == kInfinity)
      fail(ErrorKind::data,
           "tensor {} has a value beyond the range of f16 (65504): export with --dtype bf16 or f32",
           tensor);
  }
}

}  // namespace trireme::checkpoint
