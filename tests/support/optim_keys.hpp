#pragma once
#include <string_view>
#include <variant>

#include "optim/config.hpp"

namespace trireme {

/// Returns the value of an optimizer's key, converted to its type.
template <class T>
T& optim_key(optim::OptimConfig& config, std::string_view name) {
  for (optim::OptimizerKey& one : config.keys) {
    if (one.name == name) return std::get<T>(one.value);
  }
  fail(ErrorKind::internal, "no optimizer has a key {}", name);
}

}  // namespace trireme
