#pragma once
#include <cstdint>

#include "model/config.hpp"
#include "model/int8_weights.hpp"
#include "model/lora/lora_config.hpp"
#include "ops/norm.hpp"
#include "ops/path.hpp"
#include "ops/rope.hpp"
#include "parallel/context/shard_sequence.hpp"
#include "parallel/experts/expert_group.hpp"
#include "parallel/recompute.hpp"
#include "parallel/tensor/tensor_group.hpp"

namespace trireme::model {

class Fp8Scaling;
struct RouterStatistics;

struct LayerContext {
  ModelConfig config;
  ops::RopeTables rope;
  ops::Path path = ops::Path::fast;
  std::uint64_t dropout_key = 0;  // philox_key(seed, "dropout")
  parallel::Recompute recompute = parallel::Recompute::none;
  parallel::TensorGroup tensor = {};
  parallel::ContextGroup context = {};
  LoraConfig lora = {};
  RouterStatistics* statistics = nullptr;  // models with experts; outlives the layers
  parallel::ExpertGroup experts = {};
  Fp8Scaling* fp8 = nullptr;        // outlives the layers
  ops::RopeTables local_rope = {};  // layers with a window, if model.local_rope_theta is set
  ops::RopeTables no_rope =
      {};                 // rotation by 0, for layers without rotary embedding, if there are any
  Int8Weights int8 = {};  // inference only
  std::int64_t training_window = 0;  // largest window in training; 0: no limit

  /// Returns the settings of the norms of the residual stream.
  [[nodiscard]] ops::NormSetup norm() const {
    return {config.layer_norm() ? ops::NormKind::layer : ops::NormKind::rms, config.norm_eps, path};
  }
};

}  // namespace trireme::model
