#pragma once
#include <algorithm>
#include <vector>

#include "pipeline/simulate.hpp"

namespace trireme::pipeline {

/// The times at which action results exist, by stage and micro-batch.
class Results {
 public:
  Results(const Schedule& schedule, const Timing& timing)
      : placement_(schedule.placement),
        micro_batches_(schedule.micro_batches),
        transfer_(timing.transfer),
        forward_(static_cast<std::size_t>(placement_.stages() * micro_batches_), kNever),
        input_grad_(forward_) {}

  /// Returns the time at which all inputs of the action are on its rank.
  [[nodiscard]] double ready(const Pass& pass) const {
    const int stage = pass.stage;
    if (pass.kind == PassKind::forward)
      return stage == 0 ? 0 : arrived(forward_, stage - 1, stage, pass.micro_batch);
    if (pass.kind == PassKind::weight_grad) return at(input_grad_, stage, pass.micro_batch);
    const double own = at(forward_, stage, pass.micro_batch);
    if (stage + 1 == placement_.stages()) return own;
    return std::max(own, arrived(input_grad_, stage + 1, stage, pass.micro_batch));
  }

  void end(const Pass& pass, double time) {
    if (pass.kind == PassKind::forward) forward_[place(pass.stage, pass.micro_batch)] = time;
    if (gives_input_grad(pass.kind)) input_grad_[place(pass.stage, pass.micro_batch)] = time;
  }

 private:
  [[nodiscard]] std::size_t place(int stage, int micro_batch) const {
    return static_cast<std::size_t>(stage * micro_batches_ + micro_batch);
  }

  [[nodiscard]] double at(const std::vector<double>& ends, int stage, int micro_batch) const {
    return ends[place(stage, micro_batch)];
  }

  [[nodiscard]] double arrived(const std::vector<double>& ends, int from, int to,
                               int micro_batch) const {
    const auto& ranks = placement_.rank_of_stage;
    const bool same = ranks[static_cast<std::size_t>(from)] == ranks[static_cast<std::size_t>(to)];
    return at(ends, from, micro_batch) + (same ? 0 : transfer_);
  }

  const Placement& placement_;
  int micro_batches_;
  double transfer_;
  std::vector<double> forward_;
  std::vector<double> input_grad_;
};

}  // namespace trireme::pipeline
