#pragma once
#include <span>
#include <string>

#include "model/lora/lora_config.hpp"
#include "model/weighted.hpp"
#include "parallel/tensor/tensor_group.hpp"

namespace trireme {

/// One of the linears that share an input, and how its weight is cut over the ranks of tp.
struct AdaptedLinear {
  BlockLinear which;
  DimSplit split;
};

/// Declares the adapters of those of `linears`, neighbours in one matrix, that are targets:
/// "<prefix><module>.lora_A.weight" [rank, in] with values as peft draws them (uniform within 1 /
/// sqrt(in), what kaiming_uniform gives with a = sqrt 5), then "<prefix><module>.lora_B.weight"
/// [out, rank] of zeros.
///
/// With tensor parallelism the side that meets the cut dimension of W is cut alike; of the other
/// every rank has all and forms a part of the gradient. No term needs a sum of its own: it is added
/// to what the linear's ranks add up or enter anyway.
weighted::Adapters declare_adapters(ParamRegistry& registry, const LoraConfig& config,
                                    const ModelConfig& model, const TensorGroup& tensor,
                                    const std::string& prefix,
                                    std::span<const AdaptedLinear> linears);

}  // namespace trireme
