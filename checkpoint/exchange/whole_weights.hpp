#pragma once
#include <vector>

#include "checkpoint/exchange/safetensors.hpp"
#include "checkpoint/load/load.hpp"
#include "core/dtype.hpp"
#include "model/config.hpp"

namespace trireme::checkpoint {

/// Lists the tensors of a whole model with the names, shapes and order of hf_tensors, for any
/// export. A tensor is read and converted to `dtype` when it is written. With `base`, the
/// checkpoint holds adapters, which are merged into the weights of `base`; otherwise null. Both
/// checkpoints must outlive the result. Throws Error(data) if the parameters do not match `config`.
std::vector<SafetensorsSource> whole_weights(const Checkpoint& checkpoint, const Checkpoint* base,
                                             const model::ModelConfig& config, DType dtype);

}  // namespace trireme::checkpoint
