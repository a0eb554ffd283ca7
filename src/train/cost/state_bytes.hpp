#pragma once
#include <cstdint>

#include "train/cost/update_facts.hpp"

namespace trireme::train {

/// Elements of parameters on one rank before ZeRO shards them. All formulas here count in floating
/// point, so that huge sizes do not overflow; counts of real runs are exact.
struct Elements {
  double dense = 0;
  double experts = 0;  // experts in the expert grid, which ZeRO shards over other ranks
};

/// Bytes of weights and training state on one rank.
struct StateBytes {
  double weights = 0;    // weights for computation
  double main = 0;       // master weights if they are a separate copy
  double grads = 0;      // master gradients, whole or this rank's shard
  double optimizer = 0;  // optimizer state
};

/// Returns the elements that this rank keeps: all of `elements`, or its shard.
double held_elements(const UpdateFacts& facts, const Elements& elements, bool sharded);

/// Returns the bytes of weights that `elements` take on this rank.
double weight_bytes(const UpdateFacts& facts, const Elements& elements);

/// Returns the bytes of weights and training state of trainable parameters. With AdamW and d data
/// ranks that shard one replica, the bytes per parameter for ZeRO stages 0 to 3 are: bf16 18, 6 +
/// 12/d, 2 + 16/d, 18/d; fp32 16, 8 + 8/d, 4 + 12/d, 16/d. A frozen parameter has only its weight.
/// Source: Rajbhandari et al., "ZeRO", SC 2020, section 5.
StateBytes state_bytes(const UpdateFacts& facts, const Elements& trained);

/// Returns the mean number of elements per rank for a model of `count` parameters, of which
/// `experts` belong to routed experts, without padding and without the second copy of a tied
/// embedding. The largest rank has at least as many.
Elements mean_elements(const UpdateFacts& facts, double count, double experts);

/// The mean number of trainable and frozen elements per rank.
struct MeanElements {
  Elements trained;
  Elements frozen;  // with LoRA: all parameters except the adapters
};

MeanElements mean_elements(const UpdateFacts& facts);

/// Returns the bytes of one checkpoint: fp32 master weights and optimizer state of all trainable
/// parameters.
std::int64_t checkpoint_bytes(const UpdateFacts& facts);

}  // namespace trireme::train
