#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace trireme::train {

/// The draws of Python's `random.Random(seed)` for a seed that is not negative: the generator
/// MT19937, and `sample` and `shuffle` of CPython 3.11 and later. Evaluations that were defined in
/// Python draw their examples with it.
/// Source: Matsumoto and Nishimura, "Mersenne Twister", 1998 (init_by_array); CPython,
/// Lib/random.py.
class PythonRandom {
 public:
  explicit PythonRandom(std::uint64_t seed);

  /// Returns 32 random bits.
  std::uint32_t bits();

  /// Returns an integer in [0, n), like `randrange(n)`. `n` is at least 1 and below 2^32.
  std::uint32_t below(std::uint32_t n);

  /// Returns `k` different positions of a list of `n` members, in the order of `sample(list, k)`.
  /// `k` is at most `n`.
  std::vector<std::size_t> sample(std::size_t n, std::size_t k);

  /// Shuffles like `shuffle(list)`.
  template <class T>
  void shuffle(std::vector<T>& list) {
    for (std::size_t last = list.size(); last-- > 1;) {
      const std::size_t other = below(static_cast<std::uint32_t>(last + 1));
      if (other != last) std::swap(list[last], list[other]);
    }
  }

 private:
  static constexpr std::size_t kWords = 624;

  void refill();

  std::array<std::uint32_t, kWords> state_{};
  std::size_t used_ = kWords;  // words of the state that were returned
};

}  // namespace trireme::train
