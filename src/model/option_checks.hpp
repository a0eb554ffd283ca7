#pragma once
#include "model/config.hpp"

namespace trireme::model {

/// Reports invalid values of options that most models do not set, and options that exclude each
/// other.
void check_options(const ModelConfig& config, Problems& problems);

}  // namespace trireme::model
