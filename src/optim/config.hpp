#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "core/own_keys.hpp"
#include "core/problems.hpp"

namespace trireme::optim {

/// Value of optim.min_lr that stands for 0.1 lr.
inline constexpr double kTenthOfLr = -1;
inline constexpr double kMaxLr = 1e6;
/// Value of optim.decay_steps that stands for a tenth of train.steps.
inline constexpr std::int64_t kTenthOfSteps = -1;
/// Values of optim.schedule and optim.decay_shape that have keys or rules of their own.
inline constexpr const char* kWsdSchedule = "wsd";
inline constexpr const char* kPiecewiseSchedule = "piecewise";
inline constexpr const char* kExponentialDecay = "exponential";

/// A key of [optim] that one or more optimizers declare, for example beta2 of adamw and lion. The
/// help text says which optimizers have it and how each one uses it.
using OptimizerKey = OwnKey;

/// Returns the keys of all optimizers, each once, with the default of the first optimizer.
std::vector<OptimizerKey> optimizer_keys();

/// Returns "optimizer: adamw (...), sgd (...)" for help.
const char* optimizer_help();

/// The optimizer, its learning-rate schedule and gradient clipping. Keys are flat: the keys of all
/// optimizers are in one section, and `name` decides which of them are read.
struct OptimConfig {
  std::string name = "adamw";
  double lr = 3e-4;
  double min_lr = kTenthOfLr;
  std::int64_t warmup_steps = 0;
  std::string schedule = "cosine";
  std::int64_t decay_steps = kTenthOfSteps;
  std::string decay_shape = "linear";
  std::string points = {};
  std::vector<OptimizerKey> keys = optimizer_keys();
  double clip_norm = 1.0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("name", self.name, optimizer_help());
    visit("lr", self.lr, "peak learning rate, per optimizer step");
    visit("min_lr", self.min_lr,
          "final learning rate of the cosine, linear and wsd schedules; -1: 0.1 lr");
    visit("warmup_steps", self.warmup_steps, "number of steps of linear warmup from 0 to lr");
    visit(
        "schedule", self.schedule,
        "learning-rate schedule after warmup: cosine, linear, constant, wsd (constant, then a decay), piecewise (see points), minimind-v2 or minimind-v3");
    visit("decay_steps", self.decay_steps,
          "wsd: number of steps of the decay at the end; 0: no decay; -1: a tenth of train.steps");
    visit(
        "decay_shape", self.decay_shape,
        "wsd: shape of the decay from lr to min_lr: linear, cosine, sqrt (1 - sqrt) or exponential");
    visit(
        "points", self.points,
        "piecewise: learning rates as a list of STEP:RATE, such as 0:0,100:3e-4,900:3e-4,1000:3e-5; linear between the points; the largest rate is optim.lr");
    visit_own_keys(self.keys, visit);
    visit("clip_norm", self.clip_norm, "maximum global gradient norm; 0: no clipping");
  }

  /// Returns the config struct of one optimizer, filled from the flat keys.
  template <class Own>
  [[nodiscard]] Own own() const {
    return read_own_keys<Own>(keys);
  }
};

void check(const OptimConfig& config, Problems& problems);

/// Range checks that optimizers share; both report NaN.
inline void check_fraction(const std::string& key, double value, Problems& problems) {
  if (!(value >= 0 && value < 1)) problems.add(key, value, "must be in [0, 1)");
}

inline void check_not_negative(const std::string& key, double value, Problems& problems) {
  if (!(value >= 0)) problems.add(key, value, "must be 0 or more");
}

}  // namespace trireme::optim
