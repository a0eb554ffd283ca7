#pragma once
#include <array>
#include <cstdint>
#include <span>

namespace trireme {

/// The exact sum of numbers that are not negative: the same whatever their order, and whatever
/// ranks they lie on, because whole numbers are added.
///
/// A number is cut at fixed places of the fp64 range into words of 32 bits, and each word has its
/// own sum. The sums of several ranks are added word by word (all-reduce of words()). Source:
/// Kulisch, "Computer arithmetic and validity", 2008, chapter 8.
class ExactSum {
 public:
  /// Bits of every finite double, from 2^-1074 up, and the last number's two words more.
  static constexpr std::size_t kWords = (2046 + 31) / 32 + 3;

  /// `value` is not negative; what is not finite is counted, not added. At most 2^31 numbers
  /// between two calls of carry().
  void add(double value) noexcept;

  /// Leaves little more than 32 bits in every word: the words of 2^29 ranks can be added up.
  void carry() noexcept;

  /// Sums of the words, then the number of values that were not finite.
  [[nodiscard]] std::span<std::int64_t> words() { return words_; }

  [[nodiscard]] std::int64_t num_not_finite() const { return words_[kWords]; }

  /// Rounded; infinity with a value that was not finite.
  [[nodiscard]] double value() const;

 private:
  std::array<std::int64_t, kWords + 1> words_{};
};

}  // namespace trireme
