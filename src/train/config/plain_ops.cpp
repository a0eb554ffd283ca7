#include "train/config/plain_ops.hpp"

#include "core/by_name.hpp"
#include "core/join.hpp"

namespace trireme::train {

std::vector<std::string> plain_op_names(std::string_view text) {
  std::vector<std::string> names;
  if (text.empty()) return names;
  for (const std::string& part : split(text, ',')) {
    const std::size_t first = std::min(part.find_first_not_of(' '), part.size());
    names.push_back(part.substr(first, part.find_last_not_of(' ') + 1 - first));
  }
  return names;
}

std::vector<ops::Operation> plain_operations(const TrainConfig& config) {
  std::vector<ops::Operation> operations;
  const auto add = [&](std::string_view name) {
    operations.push_back(by_name<ops::Operation>(ops::kOperations, name));
  };
  if (config.fused_ops) {
    for (const std::string& name : plain_op_names(config.plain_ops)) add(name);
  } else {
    for (const std::string_view name : ops::kOperations) add(name);
  }
  return operations;
}

}  // namespace trireme::train
