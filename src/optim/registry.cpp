#include "optim/registry.hpp"

#include <array>

#include "optim/adamw.hpp"
#include "optim/lion.hpp"
#include "optim/sgd.hpp"

namespace trireme::optim {
namespace {

template <class T>
constexpr OptimizerRow row(const char* name, const char* help) {
  using Config = typename T::Config;
  return {
      name,
      help,
      own_keys<Config>,
      [](const OptimConfig& config, Problems& problems) { check(config.own<Config>(), problems); },
      [](const OptimConfig& config) { return T::num_slots(config.own<Config>()); },
      [](const OptimConfig& config,
         parallel::ParamRegistry& registry) -> std::unique_ptr<Optimizer> {
        return std::make_unique<T>(config.own<Config>(), registry, param_ranges(registry));
      }};
}

constexpr std::array kOptimizers{
    row<AdamW>("adamw", "Adam, decoupled weight decay"),
    row<Sgd>("sgd", "gradient descent, with or without momentum"),
    row<Lion>("lion", "sign of the momentum, decoupled weight decay"),
};

}  // namespace

std::span<const OptimizerRow> optimizer_rows() {
  return kOptimizers;
}

const OptimizerRow* find_optimizer(std::string_view name) {
  for (const OptimizerRow& one : kOptimizers) {
    if (name == one.name) return &one;
  }
  return nullptr;
}

}  // namespace trireme::optim
