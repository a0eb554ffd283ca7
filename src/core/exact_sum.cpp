#include "core/exact_sum.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace trireme {
namespace {

constexpr std::uint64_t kLowWord = 0xffffffff;
constexpr int kFractionBits = 52;
constexpr std::uint64_t kInfiniteExponent = 0x7ff;
constexpr int kLowestExponent = -1074;  // exponent of the lowest bit of the smallest double

}  // namespace

void ExactSum::add(double value) noexcept {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const std::uint64_t exponent = bits >> kFractionBits & kInfiniteExponent;
  if (exponent == kInfiniteExponent) {
    ++words_[kWords];
    return;
  }
  const std::uint64_t hidden = exponent == 0 ? 0 : std::uint64_t{1} << kFractionBits;
  const std::uint64_t digits =
      (bits & (hidden == 0 ? ~std::uint64_t{0} >> 12 : hidden - 1)) | hidden;
  const std::uint64_t place = exponent == 0 ? 0 : exponent - 1;  // position of the lowest digit
  const std::uint64_t shift = place % 32;
  const std::uint64_t low = (digits & kLowWord) << shift;
  const std::uint64_t high = ((digits >> 32) << shift) + (low >> 32);
  std::int64_t* word = words_.data() + place / 32;
  word[0] += static_cast<std::int64_t>(low & kLowWord);
  word[1] += static_cast<std::int64_t>(high & kLowWord);
  word[2] += static_cast<std::int64_t>(high >> 32);
}

void ExactSum::carry() noexcept {
  for (std::size_t i = kWords - 1; i > 0; --i) {
    words_[i] += words_[i - 1] >> 32;
    words_[i - 1] &= static_cast<std::int64_t>(kLowWord);
  }
}

double ExactSum::value() const {
  if (num_not_finite() != 0) return std::numeric_limits<double>::infinity();
  std::array<std::uint64_t, kWords> digits{};  // the words, each below 2^32
  std::uint64_t carry = 0;
  for (std::size_t i = 0; i < kWords; ++i) {
    const std::uint64_t word = static_cast<std::uint64_t>(words_[i]) + carry;
    digits[i] = word & kLowWord;
    carry = word >> 32;
  }
  double sum = 0;
  for (std::size_t i = 0; i < kWords; ++i)
    sum += std::ldexp(static_cast<double>(digits[i]), static_cast<int>(32 * i) + kLowestExponent);
  return sum;
}

}  // namespace trireme
