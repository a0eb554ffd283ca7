#pragma once
#include <array>
#include <cstdint>
#include <span>

#include "core/exact_words.hpp"

namespace trireme {

/// Adds non-negative numbers exactly. The result does not depend on their order or on the ranks
/// that hold them, because only integers are added.
///
/// Each number is cut at fixed positions of the fp64 range into 32-bit words, and each word has its
/// own sum. The sums of several ranks are added word by word (all-reduce of words()). Source:
/// Kulisch, "Computer arithmetic and validity", 2008, chapter 8.
class ExactSum {
 public:
  static constexpr auto kWords = static_cast<std::size_t>(kExactWords);

  /// Adds a non-negative value. A value that is not finite is counted, not added. At most 2^31
  /// values may be added between two calls of carry().
  void add(double value) noexcept;

  /// Reduces every word to little more than 32 bits, so that the words of 2^29 ranks can be added.
  void carry() noexcept;

  /// Returns the sums of the words, followed by the number of values that were not finite.
  [[nodiscard]] std::span<std::int64_t> words() { return words_; }

  [[nodiscard]] std::int64_t num_not_finite() const { return words_[kWords]; }

  /// Returns the rounded sum; infinity if a value was not finite.
  [[nodiscard]] double value() const;

 private:
  std::array<std::int64_t, kWords + 1> words_{};
};

}  // namespace trireme
