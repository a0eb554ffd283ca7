#include "train/health/early_stop.hpp"

#include <cmath>
#include <limits>

#include "core/counted.hpp"
#include "core/number.hpp"
#include "core/rounded_text.hpp"

namespace trireme::train {

void EarlyStop::add(std::int64_t step, double loss) {
  if (std::isfinite(loss) && (best_step_ < 0 || loss < best_loss_)) {
    best_step_ = step;
    best_loss_ = loss;
    without_lower_ = 0;
  } else {
    ++without_lower_;
  }
}

std::string EarlyStop::reason() const {
  constexpr int kDigits = 6;
  const std::string best =
      best_step_ < 0
          ? "no loss was finite"
          : formatted("the lowest is {} at step {}", rounded_text(best_loss_, kDigits), best_step_);
  return formatted("early stop: {} without a lower validation loss (train.patience = {}); {}",
                   counted(without_lower_, "validation"), patience_, best);
}

void EarlyStop::put_state(RunValues& values) const {
  if (best_step_ < 0 && without_lower_ == 0) return;
  values.early_stop_without_lower = without_lower_;
  if (best_step_ < 0) return;
  values.early_stop_best_step = best_step_;
  values.early_stop_best_loss = best_loss_;
}

void EarlyStop::restore(const RunValues& saved) {
  if (!saved.early_stop_without_lower) return;
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  without_lower_ = number_in(saved, &RunValues::early_stop_without_lower, 0, kMost);
  if (!saved.early_stop_best_loss || !std::isfinite(*saved.early_stop_best_loss)) return;
  best_step_ = number_in(saved, &RunValues::early_stop_best_step, 0, kMost);
  best_loss_ = *saved.early_stop_best_loss;
}

}  // namespace trireme::train
