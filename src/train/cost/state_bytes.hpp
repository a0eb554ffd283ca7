#pragma once
#include <cstdint>

#include "train/cost/update_facts.hpp"

namespace trireme {

/// Elements of parameters of one rank before ZeRO shards them.
template <class Number>
struct Elements {
  Number dense = 0;
  Number experts = 0;  // of experts in a grid of their own, which ZeRO shards over other ranks
};

/// Bytes of weights and training state on one rank.
template <class Number>
struct StateBytes {
  Number weights = 0;    // that the model computes with
  Number main = 0;       // master weights, if they are a copy of their own
  Number grads = 0;      // master gradients, whole or this rank's shard
  Number optimizer = 0;  // optimizer state
};

/// Returns the bytes of weights that `elements` take on this rank.
template <class Number>
Number weight_bytes(const UpdateFacts& facts, const Elements<Number>& elements);

/// Returns the bytes of weights and training state of trainable parameters. For d = the data ranks
/// that share one copy, in bytes per parameter with AdamW and ZeRO stages 0 to 3: bf16 18, 6 + 12/d,
/// 2 + 16/d, 18/d; fp32 16, 8 + 8/d, 4 + 12/d, 16/d. A frozen parameter has its weight alone.
/// Source: Rajbhandari et al., "ZeRO", SC 2020, section 5.
template <class Number>
StateBytes<Number> state_bytes(const UpdateFacts& facts, const Elements<Number>& trained);

extern template std::int64_t weight_bytes(const UpdateFacts&, const Elements<std::int64_t>&);
extern template double weight_bytes(const UpdateFacts&, const Elements<double>&);
extern template StateBytes<std::int64_t> state_bytes(const UpdateFacts&,
                                                     const Elements<std::int64_t>&);
extern template StateBytes<double> state_bytes(const UpdateFacts&, const Elements<double>&);

/// Returns the elements of the mean rank for a model of `count` parameters, `experts` of them of
/// routed experts: without padding, without the second copy of a tied table, and in floating point,
/// so that absurd sizes are counted, too. No rank with the most elements has fewer.
Elements<double> mean_elements(const UpdateFacts& facts, double count, double experts);

/// Elements of the mean rank, by whether they are trained.
struct MeanElements {
  Elements<double> trained;
  Elements<double> frozen;  // with LoRA: all parameters but the adapters
};

MeanElements mean_elements(const UpdateFacts& facts);

/// Returns the bytes of one checkpoint: fp32 master weights and optimizer state of all trainable
/// parameters.
std::int64_t checkpoint_bytes(const UpdateFacts& facts);

}  // namespace trireme
