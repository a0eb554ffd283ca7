#pragma once
#include "core/problems.hpp"
#include "train/config/config.hpp"

namespace trireme {

/// Adds every value of `config` that is out of range, with its allowed range.
void check(const RunConfig& config, Problems& problems);

}  // namespace trireme
