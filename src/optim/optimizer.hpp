#pragma once
#include <ATen/ATen.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/problems.hpp"
#include "optim/config.hpp"
#include "optim/param_ranges.hpp"

namespace trireme {

/// One state buffer of an optimizer, made by the registry's make_state(): one number for every
/// element that this rank updates.
struct OptimizerSlot {
  std::string name;  // "exp_avg"
  at::Tensor flat;
};

/// Updates the registry's main weights from its main gradients.
///
/// An optimizer is a file with
///   a config struct with fields(): its keys of [optim] and their defaults
///   check(config, problems)        what is wrong with their values
///   a class with Config, num_slots(config) and a constructor of (config, registry, params)
/// and a row in registry.cpp. It updates the parameters in `params` and no others, so an optimizer can hold a second
/// one for the rest.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// Update number `update` (from 1, skipped updates do not count) at learning rate `lr`.
  /// Gradients are final: summed, scaled and clipped.
  virtual void step(std::int64_t update, double lr) = 0;

  /// State to be saved and loaded, beside the step number. Their names are no other optimizer's, so
  /// that a checkpoint of one is not taken for the state of another.
  [[nodiscard]] virtual std::vector<OptimizerSlot> slots() = 0;
};

/// By `config.name`. Throws Error(usage) naming the known ones.
std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, ParamRegistry& registry);
std::vector<std::string> optimizer_names();

/// How many slots that optimizer would have, each as large as the main weights it updates.
std::size_t num_optimizer_slots(const OptimConfig& config);

/// The keys that optimizer `name` reads, with its defaults; none for an unknown name.
std::vector<OptimizerKey> keys_of_optimizer(std::string_view name);

/// Optimizer `name` with all keys at its defaults.
OptimConfig optimizer_defaults(std::string_view name);

}  // namespace trireme
