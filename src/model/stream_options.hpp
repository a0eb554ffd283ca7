#pragma once
#include <string>

#include "model/config.hpp"

namespace trireme::model {

/// Reports layers that the model does not have.
void check_layers(const char* key, const std::string& text, std::int64_t num_layers,
                  Problems& problems);

/// Checks the options of modded-nanoGPT and nanochat.
void check_stream_options(const ModelConfig& config, Problems& problems);

/// Returns the number of weights of the smear, of residual terms and of value embeddings.
double num_stream_parameters(const ModelConfig& config);

}  // namespace trireme::model
