#include "train/health/spike.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <string_view>
#include <vector>

namespace trireme::train {
namespace {

constexpr double kSigmaOfMad = 1.4826;    // standard deviation / MAD of a normal distribution
constexpr double kLeastDeviation = 1e-3;  // relative to the median: noise is no spike

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace

std::optional<double> SpikeDetector::score(double value) {
  if (!std::isfinite(value)) return std::nullopt;
  std::optional<double> result;
  if (window_.size() >= kLeast) {
    std::vector<double> values(window_.begin(), window_.end());
    const double center = median(values);
    for (double& one : values) one = std::abs(one - center);
    const double deviation =
        std::max({kSigmaOfMad * median(values), kLeastDeviation * std::abs(center), 1e-300});
    result = (value - center) / deviation;
  }
  window_.push_back(value);
  if (window_.size() > kWindow) window_.pop_front();
  return result;
}

std::string SpikeDetector::text() const {
  std::string text;
  for (const double value : window_) {
    std::array<char, 32> digits{};
    const auto [end, code] = std::to_chars(digits.data(), digits.data() + digits.size(), value);
    text.append(digits.data(), end);
    text += ' ';
  }
  return text;
}

void SpikeDetector::restore(const std::string& text) {
  window_.clear();
  std::string_view rest = text;
  while (!rest.empty() && window_.size() < kWindow) {
    double value = 0;
    const auto [end, code] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (code != std::errc{} || !std::isfinite(value)) {
      window_.clear();
      return;
    }
    window_.push_back(value);
    rest.remove_prefix(static_cast<std::size_t>(end - rest.data()));
    while (!rest.empty() && rest.front() == ' ') rest.remove_prefix(1);
  }
}

}  // namespace trireme::train
