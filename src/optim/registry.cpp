#include <array>

#include "core/error.hpp"
#include "optim/adamw.hpp"

namespace trireme {
namespace {

struct OptimizerRow {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(const OptimConfig& config, ParamRegistry& registry);
};

template <class T>
std::unique_ptr<Optimizer> make(const OptimConfig& config, ParamRegistry& registry) {
  return std::make_unique<T>(config, registry);
}

constexpr std::array<OptimizerRow, 1> kOptimizers{{{"adamw", make<AdamW>}}};

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerRow& row : kOptimizers) names.emplace_back(row.name);
  return names;
}

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config, ParamRegistry& registry) {
  for (const OptimizerRow& row : kOptimizers) {
    if (config.name == row.name) return row.make(config, registry);
  }
  fail(ErrorKind::usage, "optim.name = {}, must be adamw", config.name);
}

}  // namespace trireme
