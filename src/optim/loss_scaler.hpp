#pragma once
#include <cstdint>

namespace trireme::optim {

/// Dynamic loss scale for fp16. The scale is halved after an update with a non-finite gradient (all
/// ranks skip this update) and doubled after `kGrowthInterval` good updates in a row. In other
/// precisions the scale stays 1. Source: Micikevicius et al., "Mixed precision training", ICLR
/// 2018; defaults of torch.amp.GradScaler.
class LossScaler {
 public:
  static constexpr std::int64_t kGrowthInterval = 2000;

  explicit LossScaler(bool dynamic) : dynamic_(dynamic), scale_(dynamic ? 65536.0 : 1.0) {}

  [[nodiscard]] double scale() const { return scale_; }

  [[nodiscard]] std::int64_t good_steps() const { return good_steps_; }

  [[nodiscard]] bool dynamic() const { return dynamic_; }

  void restore(double scale, std::int64_t good_steps) {
    scale_ = scale;
    good_steps_ = good_steps;
  }

  /// Called after every update. `overflow` must be the same on all ranks.
  void update(bool overflow) {
    if (!dynamic_) return;
    if (overflow) {
      scale_ = scale_ > 1.0 ? scale_ * 0.5 : 1.0;
      good_steps_ = 0;
    } else if (++good_steps_ == kGrowthInterval) {
      scale_ *= 2.0;
      good_steps_ = 0;
    }
  }

 private:
  bool dynamic_;
  double scale_;
  std::int64_t good_steps_ = 0;
};

}  // namespace trireme::optim
