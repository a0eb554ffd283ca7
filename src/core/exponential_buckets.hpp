#pragma once
#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

namespace trireme {

/// The fixed buckets of histograms of weights and gradients. Histograms of several ranks and steps
/// have the same borders, so counts can be added.
///
/// Each power of two from 2^-30 to 2^6 has four buckets of equal width for each sign. The middle
/// bucket holds the values with |x| < 2^-30. The outermost buckets also hold all values beyond
/// +-2^6, infinities included; the last one also holds NaN. For a floating-point number, the exponent
/// and the first two bits of the mantissa select the bucket, so no rounding is involved.
struct ExponentialBuckets {
  static constexpr int kMinExponent = -30;
  static constexpr int kMaxExponent = 6;
  static constexpr int kPerOctave = 4;
  static constexpr int kPerSign = (kMaxExponent - kMinExponent) * kPerOctave;
  static constexpr std::size_t kNum = 2 * kPerSign + 1;

  /// Returns lower border i of the positive buckets, for i from 0 to kPerSign.
  static double magnitude(int i) {
    return std::ldexp(1 + static_cast<double>(i % kPerOctave) / kPerOctave,
                      kMinExponent + i / kPerOctave);
  }

  /// Returns the border below bucket `i`, for i from 0 to kNum. Bucket i is [border(i),
  /// border(i + 1)), and for negative values (border(i), border(i + 1)].
  static double border(std::size_t i) {
    const int from_middle = static_cast<int>(i) - kPerSign;
    return from_middle > 0 ? magnitude(from_middle - 1) : -magnitude(-from_middle);
  }
};

/// The part of a histogram from its first to its last bucket with elements.
struct FilledBuckets {
  std::vector<double> borders;  // one more than counts
  std::vector<double> counts;
};

inline FilledBuckets filled_buckets(std::span<const double> counts) {
  std::size_t begin = 0;
  std::size_t end = counts.size();
  while (begin < end && counts[begin] == 0) ++begin;
  while (end > begin && counts[end - 1] == 0) --end;
  FilledBuckets filled{{ExponentialBuckets::border(begin)}, {}};
  for (std::size_t i = begin; i < end; ++i) {
    filled.borders.push_back(ExponentialBuckets::border(i + 1));
    filled.counts.push_back(counts[i]);
  }
  return filled;
}

}  // namespace trireme
