#pragma once
#include "parallel/param_registry.hpp"

namespace trireme {

/// Moves what no optimizer updates (ParamSpec::sign_rate) on this rank, at an update's end. Gradients
/// are final; their size counts for nothing.
void sign_step(ParamRegistry& registry);

}  // namespace trireme
