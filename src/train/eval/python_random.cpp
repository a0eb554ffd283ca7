#include "train/eval/python_random.hpp"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/error.hpp"

namespace trireme::train {
namespace {

constexpr std::size_t kShift = 397;

/// Combines the upper bit of one word with the lower bits of the next one.
std::uint32_t twist(std::uint32_t upper, std::uint32_t lower) {
  const std::uint32_t word = (upper & 0x80000000U) | (lower & 0x7FFFFFFFU);
  return word >> 1 ^ (word % 2 == 1 ? 0x9908B0DFU : 0U);
}

/// Returns true if Python draws a sample from a copy of the list. For few draws from a long list,
/// Python remembers the drawn positions instead.
bool samples_from_copy(std::size_t n, std::size_t k) {
  std::size_t limit = 21;
  if (k > 5) {
    std::size_t power = 1;
    while (power < 3 * k) power *= 4;
    limit += power;
  }
  return n <= limit;
}

}  // namespace

PythonRandom::PythonRandom(std::uint64_t seed) {
  state_[0] = 19650218U;
  for (std::uint32_t i = 1; i < kWords; ++i)
    state_[i] = 1812433253U * (state_[i - 1] ^ state_[i - 1] >> 30) + i;
  const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed),
                                         static_cast<std::uint32_t>(seed >> 32)};
  const std::size_t key_size = key[1] == 0 ? 1 : 2;
  std::size_t i = 1;
  const auto step = [&](std::uint32_t factor, std::uint32_t added, bool subtract) {
    const std::uint32_t mixed = state_[i] ^ (state_[i - 1] ^ state_[i - 1] >> 30) * factor;
    state_[i] = subtract ? mixed - added : mixed + added;
    if (++i == kWords) {
      state_[0] = state_[kWords - 1];
      i = 1;
    }
  };
  for (std::size_t count = 0; count < kWords; ++count) {
    const std::size_t j = count % key_size;
    step(1664525U, key[j] + static_cast<std::uint32_t>(j), /*subtract=*/false);
  }
  for (std::size_t count = 0; count + 1 < kWords; ++count)
    step(1566083941U, static_cast<std::uint32_t>(i), /*subtract=*/true);
  state_[0] = 0x80000000U;
}

void PythonRandom::refill() {
  for (std::size_t i = 0; i < kWords; ++i)
    state_[i] = state_[(i + kShift) % kWords] ^ twist(state_[i], state_[(i + 1) % kWords]);
  used_ = 0;
}

std::uint32_t PythonRandom::bits() {
  if (used_ == kWords) refill();
  std::uint32_t word = state_[used_++];
  word ^= word >> 11;
  word ^= word << 7 & 0x9D2C5680U;
  word ^= word << 15 & 0xEFC60000U;
  return word ^ word >> 18;
}

std::uint32_t PythonRandom::below(std::uint32_t n) {
  TRIREME_ASSERT(n > 0);
  const int unused = std::countl_zero(n);
  std::uint32_t value = n;
  while (value >= n) value = bits() >> unused;
  return value;
}

std::vector<std::size_t> PythonRandom::sample(std::size_t n, std::size_t k) {
  TRIREME_ASSERT(k <= n);
  std::vector<std::size_t> drawn;
  if (samples_from_copy(n, k)) {
    std::vector<std::size_t> copy(n);
    std::iota(copy.begin(), copy.end(), std::size_t{0});
    for (std::size_t left = n; left > n - k; --left) {
      const std::size_t at = below(static_cast<std::uint32_t>(left));
      drawn.push_back(copy[at]);
      copy[at] = copy[left - 1];
    }
    return drawn;
  }
  while (drawn.size() < k) {
    const std::size_t at = below(static_cast<std::uint32_t>(n));
    if (std::find(drawn.begin(), drawn.end(), at) == drawn.end()) drawn.push_back(at);
  }
  return drawn;
}

}  // namespace trireme::train
