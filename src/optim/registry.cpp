#include "optim/registry.hpp"

#include <array>

#include "optim/adamw.hpp"
#include "optim/lion.hpp"
#include "optim/muon.hpp"
#include "optim/schedule.hpp"
#include "optim/sgd.hpp"

namespace trireme::optim {
namespace {

template <class T>
constexpr MatrixUse matrix_use_of() {
  if constexpr (requires { T::kMatrixUse; }) return T::kMatrixUse;
  return MatrixUse::none;
}

/// Returns the config struct of one optimizer with the values of the run that it uses.
template <class Own>
Own own_with_run(const OptimConfig& config, std::int64_t total_steps) {
  auto own = config.own<Own>();
  if constexpr (requires { own.run; }) {
    own.run = {.peak_lr = config.lr,
               .wsd = config.schedule == kWsdSchedule,
               .steps = total_steps,
               .decay_begin = decay_begin(config, total_steps)};
  }
  return own;
}

template <class T>
constexpr OptimizerRow row(const char* name, const char* help) {
  using Config = typename T::Config;
  return {name,
          help,
          own_keys<Config>,
          [](const OptimConfig& config, Problems& problems) {
            check(own_with_run<Config>(config, /*total_steps=*/0), problems);
          },
          [](const OptimConfig& config) { return T::num_slots(config.own<Config>()); },
          matrix_use_of<T>(),
          [](const OptimConfig& config, parallel::ParamRegistry& registry,
             std::int64_t total_steps) -> std::unique_ptr<Optimizer> {
            return std::make_unique<T>(own_with_run<Config>(config, total_steps), registry,
                                       param_ranges(registry));
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
