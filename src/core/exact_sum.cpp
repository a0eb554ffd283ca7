#include "core/exact_sum.hpp"

#include <bit>
#include <cmath>
#include <limits>

namespace trireme {

void ExactSum::add(double value) noexcept {
  add_exactly(std::bit_cast<std::uint64_t>(value), [&](int word, std::int64_t digits) {
    words_[static_cast<std::size_t>(word)] += digits;
  });
}

void ExactSum::carry() noexcept {
  for (std::size_t i = kWords - 1; i > 0; --i) {
    words_[i] += words_[i - 1] >> 32;
    words_[i - 1] &= static_cast<std::int64_t>(kLowWord);
  }
}

double ExactSum::value() const {
  if (num_not_finite() != 0) return std::numeric_limits<double>::infinity();
  return exact_value(words_.data(),
                     [](double digits, int exponent) { return std::ldexp(digits, exponent); });
}

}  // namespace trireme
