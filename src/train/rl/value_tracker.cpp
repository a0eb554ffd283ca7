#include "train/rl/value_tracker.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::train {
namespace {

// The constants of the source.
constexpr double kRewardLimit = 3;
constexpr double kHalfChange = 0.06;  // a change of the mean log-probability by which rho halves
constexpr double kLeastRho = 0.5;
constexpr double kMostRho = 0.96;
constexpr double kFirstRho = 0.9;

constexpr const char* kAlpha = "spo.alpha";
constexpr const char* kBeta = "spo.beta";
constexpr const char* kLogprob = "spo.mean_logprob";

}  // namespace

double ValueTracker::baseline() const {
  return alpha_ / (alpha_ + beta_) * (2 * kRewardLimit) - kRewardLimit;
}

double ValueTracker::add(double mean_reward, double mean_logprob) {
  double rho = kFirstRho;
  if (last_logprob_) {
    const double change = std::abs(*last_logprob_ - mean_logprob);
    rho = std::clamp(std::exp2(-change / kHalfChange), kLeastRho, kMostRho);
  }
  last_logprob_ = mean_logprob;
  const double scaled = (mean_reward + kRewardLimit) / (2 * kRewardLimit);
  alpha_ = rho * alpha_ + scaled;
  beta_ = rho * beta_ + (1 - scaled);
  return rho;
}

void ValueTracker::put(std::map<std::string, std::string>& samples) const {
  samples[kAlpha] = number_text(alpha_);
  samples[kBeta] = number_text(beta_);
  if (last_logprob_) samples[kLogprob] = number_text(*last_logprob_);
}

ValueTracker ValueTracker::read(const std::map<std::string, std::string>& samples) {
  ValueTracker tracker;
  const auto number = [&](const char* name) -> std::optional<double> {
    const auto found = samples.find(name);
    if (found == samples.end()) return std::nullopt;
    const auto value = parse_number(found->second);
    if (!value) {
      fail(ErrorKind::data, "The checkpoint's value samples.{} is '{}'. It must be a number.", name,
           found->second);
    }
    return value;
  };
  tracker.alpha_ = number(kAlpha).value_or(tracker.alpha_);
  tracker.beta_ = number(kBeta).value_or(tracker.beta_);
  tracker.last_logprob_ = number(kLogprob);
  return tracker;
}

}  // namespace trireme::train
