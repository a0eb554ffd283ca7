#pragma once
#include <deque>
#include <optional>
#include <string>

namespace trireme::train {

/// Scores how far a value lies above earlier values, in robust standard deviations: (x - median) /
/// (1.4826 * median absolute deviation) over the last kWindow values. One spike hardly changes
/// median and deviation, so later spikes are detected, too. Source: Iglewicz and Hoaglin, "How to
/// detect and handle outliers", 1993 (modified z-score).
class SpikeDetector {
 public:
  static constexpr std::size_t kWindow = 64;
  static constexpr std::size_t kLeast = 16;  // number of values before the first score
  static constexpr double kWarn = 6;

  /// Returns the score of `value`, then adds it to the window. Returns nullopt if there are too few
  /// values, or if `value` is not finite; such a value is not added.
  std::optional<double> score(double value);

  /// text() returns the window for a checkpoint and restore() reads it, bit for bit. restore()
  /// treats invalid text as an empty window.
  [[nodiscard]] std::string text() const;
  void restore(const std::string& text);

 private:
  std::deque<double> window_;
};

}  // namespace trireme::train
