#include "optim/optimizer.hpp"

#include "core/error.hpp"
#include "optim/muon.hpp"
#include "optim/registry.hpp"

namespace trireme::optim {

void Optimizer::step_in_one_pass(std::int64_t /*update*/, double /*lr*/,
                                 const at::Tensor& /*factor*/) {
  fail(ErrorKind::internal, "step_in_one_pass was called for an optimizer that does not have it");
}

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const OptimizerRow& row : optimizer_rows()) names.emplace_back(row.name);
  return names;
}

std::vector<OptimizerKey> keys_of_optimizer(std::string_view name) {
  const OptimizerRow* row = find_optimizer(name);
  return row == nullptr ? std::vector<OptimizerKey>{} : row->keys();
}

OptimConfig optimizer_defaults(std::string_view name) {
  OptimConfig config;
  config.name = name;
  for (const OptimizerKey& own : keys_of_optimizer(name)) {
    for (OptimizerKey& key : config.keys) {
      if (key.name == own.name) key.value = own.value;
    }
  }
  return config;
}

std::size_t num_optimizer_slots(const OptimConfig& config) {
  const OptimizerRow* row = find_optimizer(config.name);
  return row == nullptr ? 0 : row->num_slots(config);
}

MatrixUse matrix_use(const OptimConfig& config) {
  const OptimizerRow* row = find_optimizer(config.name);
  return row == nullptr ? MatrixUse::none : row->matrix_use;
}

std::string orthogonalization(const OptimConfig& config) {
  return config.own<MuonConfig>().orthogonalize;
}

std::string decay_schedule(const OptimConfig& config) {
  for (const OptimizerKey& key : keys_of_optimizer(config.name))
    if (key.name == "decay_schedule") return config.own<MuonConfig>().decay_schedule;
  return "constant";
}

std::unique_ptr<Optimizer> make_optimizer(const OptimConfig& config,
                                          parallel::ParamRegistry& registry,
                                          std::int64_t total_steps) {
  const OptimizerRow* row = find_optimizer(config.name);
  if (row == nullptr) {
    Problems problems;
    problems.one_of("optim.name", config.name, optimizer_names());
    problems.throw_if_any();
  }
  return row->make(config, registry, total_steps);
}

}  // namespace trireme::optim
