#pragma once
#include "core/problems.hpp"
#include "train/config/config.hpp"

namespace trireme {

/// Adds an error for every value of `config` that is out of range.
void check(const RunConfig& config, Problems& problems);

}  // namespace trireme
