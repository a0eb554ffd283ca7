#pragma once
#include <string>

#include "model/layer_context.hpp"
#include "parallel/param_registry.hpp"

namespace trireme::model {

/// Declares a norm of the residual stream: "<name>.weight", and with LayerNorm "<name>.bias" behind
/// it; nothing without model.norm_gain. With sequence parallelism, each rank has the gradient of
/// its own tokens only.
parallel::WeightRef declare_stream_norm(parallel::ParamRegistry& registry,
                                        const LayerContext& context, const std::string& name);

}  // namespace trireme::model
