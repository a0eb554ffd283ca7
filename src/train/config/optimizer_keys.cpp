#include "train/config/optimizer_keys.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include "core/join.hpp"
#include "optim/optimizer.hpp"

namespace trireme {
namespace {

constexpr const char* kOptimSection = "optim";

bool has_key(const std::vector<OptimizerKey>& keys, const std::string& name) {
  return std::any_of(keys.begin(), keys.end(),
                     [&](const OptimizerKey& key) { return key.name == name; });
}

}  // namespace

void settle_optimizer_keys(const OptimConfig& optim, ConfigSet& keys) {
  OptimConfig chosen = optimizer_defaults(optim.name);
  const std::vector<OptimizerKey> own = keys_of_optimizer(optim.name);
  if (own.empty()) return;  // no known optimizer: its check says so
  const std::string own_names = joined(own, ", ", [](const OptimizerKey& key) { return key.name; });
  for (const OptimizerKey& key : chosen.keys) {
    const std::string name = formatted("{}.{}", kOptimSection, key.name);
    const bool lacks = !has_key(own, key.name);
    keys.leave_out(name, lacks);
    if (lacks && keys.is_set(name)) {
      keys.problems().add(name, keys.value(name),
                          formatted("is no key of {}, which has {}", optim.name, own_names));
    }
  }
  std::vector<Field> defaults = fields_of(kOptimSection, chosen);
  std::erase_if(defaults,
                [&](const Field& field) { return !has_key(own, std::string(name_of(field.key))); });
  keys.apply_preset(defaults, "default");
}

}  // namespace trireme
