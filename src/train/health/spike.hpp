#pragma once
#include <deque>
#include <optional>
#include <string>

namespace trireme {

/// How far a value lies above what came before it, in robust standard deviations: (x - median) /
/// (1.4826 * median absolute deviation) over the last kWindow values. A spike does not move median
/// or deviation much, so the next ones are seen too. Source: Iglewicz and Hoaglin, "How to detect
/// and handle outliers", 1993 (modified z-score).
class SpikeDetector {
 public:
  static constexpr std::size_t kWindow = 64;
  static constexpr std::size_t kLeast = 16;  // values before there is a score
  static constexpr double kWarn = 6;

  /// The score of `value` against the values before it, then adds it. None while there are too
  /// few, and for a value that is not finite, which is not added.
  std::optional<double> score(double value);

  /// For a checkpoint: the window as text, and back, bit for bit. Text of another form counts as
  /// an empty window.
  [[nodiscard]] std::string text() const;
  void restore(const std::string& text);

 private:
  std::deque<double> window_;
};

}  // namespace trireme
