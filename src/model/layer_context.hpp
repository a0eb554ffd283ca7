#pragma once
#include <cstdint>

#include "model/config.hpp"
#include "model/lora/lora_config.hpp"
#include "ops/path.hpp"
#include "ops/rope.hpp"
#include "parallel/context/deal_tokens.hpp"
#include "parallel/experts/expert_group.hpp"
#include "parallel/recompute.hpp"
#include "parallel/tensor/tensor_group.hpp"

namespace trireme {

struct RouterTally;

struct LayerContext {
  ModelConfig config;
  ops::RopeTables rope;
  ops::Path path = ops::Path::fast;
  std::uint64_t dropout_key = 0;  // philox_key(seed, "dropout")
  Recompute recompute = Recompute::none;
  TensorGroup tensor = {};
  ContextGroup context = {};
  LoraConfig lora = {};
  RouterTally* tally = nullptr;  // models with experts; outlives the layers
  ExpertGroup experts = {};
};

}  // namespace trireme
