#pragma once
#include "model/config.hpp"

namespace trireme::model {

/// Set the options of a preset beyond its sizes.
void set_gpt2(ModelConfig& config);
void set_nanogpt(ModelConfig& config);
void set_nanochat(ModelConfig& config);

}  // namespace trireme::model
