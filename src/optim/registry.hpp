#pragma once
#include <memory>
#include <span>
#include <vector>

#include "optim/optimizer.hpp"

namespace trireme::optim {

/// One optimizer in the table of registry.cpp. Private to this directory.
struct OptimizerRow {
  const char* name;
  const char* help;
  std::vector<OptimizerKey> (*keys)();  // the optimizer's own keys with their defaults
  void (*check)(const OptimConfig& config, Problems& problems);
  std::size_t (*num_slots)(const OptimConfig& config);
  MatrixUse matrix_use;
  std::unique_ptr<Optimizer> (*make)(const OptimConfig& config, parallel::ParamRegistry& registry,
                                     std::int64_t total_steps);
};

std::span<const OptimizerRow> optimizer_rows();

/// Returns null for an unknown name.
const OptimizerRow* find_optimizer(std::string_view name);

}  // namespace trireme::optim
