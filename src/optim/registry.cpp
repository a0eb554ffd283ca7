#include "optim/registry.hpp"

#include <array>

#include "optim/adamw.hpp"
#include "optim/lion.hpp"
#include "optim/muon.hpp"
#include "optim/sgd.hpp"

namespace trireme::optim {
namespace {

template <class T>
constexpr MatrixUse matrix_use_of() {
  if constexpr (requires { T::kMatrixUse; }) return T::kMatrixUse;
  return MatrixUse::none;
}

template <class T>
constexpr OptimizerRow row(const char* name, const char* help) {
  using Config = typename T::Config;
  return {
      name,
      help,
      own_keys<Config>,
      [](const OptimConfig& config, Problems& problems) { check(config.own<Config>(), problems); },
      [](const OptimConfig& config) { return T::num_slots(config.own<Config>()); },
      matrix_use_of<T>(),
      [](const OptimConfig& config,
         parallel::ParamRegistry& registry) -> std::unique_ptr<Optimizer> {
        auto own = config.own<Config>();
        if constexpr (requires { own.peak_lr; }) own.peak_lr = config.lr;
        return std::make_unique<T>(own, registry, param_ranges(registry));
      }};
}

constexpr std::array kOptimizers{
    row<AdamW>("adamw", "Adam, decoupled weight decay"),
    row<Sgd>("sgd", "gradient descent, with or without momentum"),
    row<Lion>("lion", "sign of the momentum, decoupled weight decay"),
    row<Muon>("muon", "orthogonalized momentum for matrices, adamw for other parameters"),
    row<NorMuon>("normuon", "muon with normalized rows"),
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
