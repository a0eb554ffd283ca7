#pragma once
#include <cstdint>
#include <string>

#include "train/state/run_values.hpp"

namespace trireme::train {

/// Ends a run if its validation loss no longer decreases (train.patience). All ranks must give the
/// same losses. The checkpoint holds the state, so a resumed run continues to count.
class EarlyStop {
 public:
  /// `patience`: number of validations in a row without a lower loss that end the run; 0: never.
  explicit EarlyStop(std::int64_t patience) : patience_(patience) {}

  /// Adds the validation loss after `step`. A loss that is not finite counts as not lower.
  void add(std::int64_t step, double loss);

  /// Returns true if the run must end.
  [[nodiscard]] bool is_due() const { return patience_ > 0 && without_lower_ >= patience_; }

  /// Returns the reason for the log and for status.json. Call it only if is_due().
  [[nodiscard]] std::string reason() const;

  void put_state(RunValues& values) const;
  /// Restores the state of a checkpoint; a checkpoint without it starts to count anew.
  void restore(const RunValues& saved);

 private:
  std::int64_t patience_;
  std::int64_t without_lower_ = 0;  // number of validations since the lowest loss
  std::int64_t best_step_ = -1;     // -1: no finite loss yet
  double best_loss_ = 0;
};

}  // namespace trireme::train
