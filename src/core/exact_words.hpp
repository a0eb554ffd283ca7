#pragma once
#include <cstdint>

/// The words of an exact sum (exact_sum.hpp), for CPU code and CUDA kernels.
namespace trireme {

/// The number of words covers all bits of a finite double, from 2^-1074 up, and two more words for
/// the last one.
inline constexpr int kExactWords = (2046 + 31) / 32 + 3;

/// The exponent of the lowest bit of the smallest double.
inline constexpr int kLowestExponent = -1074;

inline constexpr std::uint64_t kLowWord = 0xffffffff;

/// Cuts a non-negative double, given by its bits, into words: calls add(word, digits) for three
/// neighbouring words. A value that is not finite is counted by add(kExactWords, 1).
template <class Add>
constexpr void add_exactly(std::uint64_t bits, Add&& add) {
  const std::uint64_t exponent = (bits >> 52) & 0x7ff;
  if (exponent == 0x7ff) {
    add(kExactWords, std::int64_t{1});
    return;
  }
  const std::uint64_t hidden = exponent == 0 ? 0 : std::uint64_t{1} << 52;
  const std::uint64_t digits = (bits & ((std::uint64_t{1} << 52) - 1)) | hidden;
  const std::uint64_t place = exponent == 0 ? 0 : exponent - 1;  // position of the lowest digit
  const std::uint64_t shift = place % 32;
  const std::uint64_t low = (digits & kLowWord) << shift;
  const std::uint64_t high = ((digits >> 32) << shift) + (low >> 32);
  const int word = static_cast<int>(place / 32);
  add(word, static_cast<std::int64_t>(low & kLowWord));
  add(word + 1, static_cast<std::int64_t>(high & kLowWord));
  add(word + 2, static_cast<std::int64_t>(high >> 32));
}

/// Returns the sum of kExactWords words, each at least 0, rounded. `scaled(digits, exponent)`
/// returns digits * 2^exponent.
template <class Scaled>
constexpr double exact_value(const std::int64_t* words, Scaled&& scaled) {
  double sum = 0;
  std::uint64_t carry = 0;
  for (int i = 0; i < kExactWords; ++i) {
    const std::uint64_t word = static_cast<std::uint64_t>(words[i]) + carry;
    sum += scaled(static_cast<double>(word & kLowWord), 32 * i + kLowestExponent);
    carry = word >> 32;
  }
  return sum;
}

}  // namespace trireme
