#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/fields.hpp"

/// Two small config structs that the tests of src/config share.
namespace trireme::config::testing_config {

struct Optim {
  std::string name = "adamw";
  double lr = 3e-4;
  double beta1 = 0.9;
  std::int64_t warmup_steps = 100;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("name", self.name, "adamw or muon");
    visit("lr", self.lr, "peak learning rate");
    visit("beta1", self.beta1, "first-moment decay, in [0, 1)");
    visit("warmup_steps", self.warmup_steps, "steps of linear warm-up");
  }
};

struct Model {
  std::string preset = "tiny";
  std::int64_t hidden_size = 64;
  bool qk_norm = true;
  double rope_theta = 1e6;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("preset", self.preset, "named shape");
    visit("hidden_size", self.hidden_size, "width");
    visit("qk_norm", self.qk_norm, "RMSNorm on each head");
    visit("rope_theta", self.rope_theta, "base of the rotary frequencies");
  }
};

struct Sample {
  Model model;
  Optim optim;

  std::vector<Field> fields() {
    std::vector<Field> all = fields_of("model", model);
    for (Field& field : fields_of("optim", optim)) all.push_back(field);
    return all;
  }
};

}  // namespace trireme::config::testing_config
