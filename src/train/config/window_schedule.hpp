#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/step_values.hpp"

namespace trireme::train {

/// The largest attention window of any layer in training, by step (train.window_schedule).
/// "0:256,1000:0": steps 1 to 1000 have windows of at most 256 tokens, later steps have the windows
/// of the model. The last window is always 0, so that the end of the training agrees with
/// validation, generation and exports, which have the windows of the model in all steps.
class WindowSchedule {
 public:
  /// Parses `text`; empty: no limit in all steps. Throws Error(usage); the message begins with a verb.
  explicit WindowSchedule(const std::string& text);

  /// Returns the largest window of `step`, from 1; 0: no limit.
  [[nodiscard]] std::int64_t window(std::int64_t step) const;

  /// Returns the largest limit.
  [[nodiscard]] std::int64_t largest() const;

 private:
  std::vector<StepValue> phases_;
};

}  // namespace trireme::train
