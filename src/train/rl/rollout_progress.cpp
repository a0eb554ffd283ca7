#include "train/rl/rollout_progress.hpp"

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::train {
namespace {

constexpr const char* kFirstStep = "rl.first_step";

}  // namespace

std::int64_t RolloutProgress::unfinished(std::int64_t step, std::int64_t length) const {
  const std::int64_t first = after(step).first_step;
  return first > 0 && step + 1 - first < length ? first : 0;
}

void RolloutProgress::put(std::int64_t step, std::map<std::string, std::string>& samples) const {
  const State& state = after(step);
  samples[kFirstStep] = cat(state.first_step);
  state.tracker.put(samples);
}

void RolloutProgress::restore(std::int64_t step,
                              const std::map<std::string, std::string>& samples) {
  now_ = {0, ValueTracker::read(samples)};
  const auto found = samples.find(kFirstStep);
  if (found == samples.end()) return;
  const auto first = parse_integer(found->second);
  if (!first || *first < 0 || *first > step) {
    fail(ErrorKind::data,
         "The checkpoint's value samples.{} is '{}'. It must be a number from 0 to {}.", kFirstStep,
         found->second, step);
  }
  now_.first_step = *first;
}

}  // namespace trireme::train
