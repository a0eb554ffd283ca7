#pragma once
#include <cstdint>

#include "train/rl/value_tracker.hpp"

namespace trireme::train {

/// The position of a run in its rollouts, and the tracker of spo. The state before the current
/// rollout is kept: if a stop cancels the first update of a rollout, the checkpoint must not count
/// the rollout.
class RolloutProgress {
 public:
  /// Returns the number of steps of the current rollout before `step`; 0 if there is no rollout.
  [[nodiscard]] std::int64_t part(std::int64_t step) const {
    return now_.first_step > 0 ? step - now_.first_step : 0;
  }

  /// Begins a rollout with `step`, from 1.
  void begin(std::int64_t step) {
    before_ = now_;
    now_.first_step = step;
  }

  /// Returns the first step of the rollout that a checkpoint of `step` lies within; 0 if the next
  /// step begins a rollout. `length`: steps of a rollout, if it does not end early (ppo).
  [[nodiscard]] std::int64_t unfinished(std::int64_t step, std::int64_t length) const;

  [[nodiscard]] ValueTracker& tracker() { return now_.tracker; }

  /// Writes the state after `step` to RunValues::samples of a checkpoint.
  void put(std::int64_t step, std::map<std::string, std::string>& samples) const;

  /// Reads the state of a checkpoint of `step`. Throws Error(data) for a value that is not valid.
  void restore(std::int64_t step, const std::map<std::string, std::string>& samples);

 private:
  struct State {
    std::int64_t first_step = 0;  // 0: there is no rollout yet
    ValueTracker tracker{};
  };

  [[nodiscard]] const State& after(std::int64_t step) const {
    return step < now_.first_step ? before_ : now_;
  }

  State now_;
  State before_;
};

}  // namespace trireme::train
