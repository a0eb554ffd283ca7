#include "train/config/window_schedule.hpp"

#include <algorithm>
#include <cmath>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::train {

WindowSchedule::WindowSchedule(const std::string& text) {
  constexpr double kLongest = 1e12;
  if (text.empty()) return;
  phases_ = parse_step_values(text);
  for (const auto& [step, window] : phases_)
    if (!(window >= 0 && window <= kLongest && window == std::floor(window)))
      fail(ErrorKind::usage,
           "has the window {} at step {}, which must be a whole number of 0 (no limit) or more",
           number_text(window), step);
  if (phases_.front().step != 0)
    fail(ErrorKind::usage, "begins at step {}. The first window must begin at step 0",
         phases_.front().step);
  if (phases_.back().value != 0)
    fail(ErrorKind::usage,
         "ends with a window of {}. The last window must be 0, so that the training ends with the "
         "windows of the model",
         number_text(phases_.back().value));
}

std::int64_t WindowSchedule::window(std::int64_t step) const {
  double window = 0;
  for (const StepValue& phase : phases_)
    if (phase.step < step) window = phase.value;
  return static_cast<std::int64_t>(window);
}

std::int64_t WindowSchedule::largest() const {
  return phases_.empty() ? 0
                         : static_cast<std::int64_t>(
                               std::ranges::max_element(phases_, {}, &StepValue::value)->value);
}

}  // namespace trireme::train
