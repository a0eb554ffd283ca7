#pragma once
#include "checkpoint/gguf/gguf_architecture.hpp"
#include "checkpoint/gguf/gguf_file.hpp"

namespace trireme::checkpoint {

/// Adds the keys of the shape.
void put_gguf_shape(const model::ModelConfig& config, const GgufArchitecture& architecture,
                    GgufValues& values);

}  // namespace trireme::checkpoint
