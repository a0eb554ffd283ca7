#pragma once
#include <cstdint>
#include <string>

namespace trireme {

/// optim.min_lr that nobody set.
inline constexpr double kTenthOfLr = -1;

/// The optimizer, its schedule and the clip.
struct OptimConfig {
  std::string name = "adamw";
  double lr = 3e-4;
  double min_lr = kTenthOfLr;
  std::int64_t warmup_steps = 0;
  std::string schedule = "cosine";
  double weight_decay = 0.1;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double clip_norm = 1.0;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("name", self.name, "optimizer: adamw");
    visit("lr", self.lr, "peak learning rate, per optimizer step");
    visit("min_lr", self.min_lr, "learning rate at the end of cosine and linear; -1: 0.1 lr");
    visit("warmup_steps", self.warmup_steps, "steps of linear warm-up from 0 to lr");
    visit("schedule", self.schedule,
          "after warm-up: cosine, linear, constant, minimind-v2 or minimind-v3");
    visit("weight_decay", self.weight_decay, "decoupled weight decay of matrices and embeddings");
    visit("beta1", self.beta1, "first-moment decay, in [0, 1)");
    visit("beta2", self.beta2, "second-moment decay, in [0, 1)");
    visit("eps", self.eps, "added to the root of the second moment");
    visit("clip_norm", self.clip_norm, "largest global gradient norm; 0: no clip");
  }
};

}  // namespace trireme
