#include "model/stream_norm.hpp"

#include <utility>

#include "model/weighted.hpp"

namespace trireme::model {

parallel::WeightRef declare_stream_norm(parallel::ParamRegistry& registry,
                                        const LayerContext& context, const std::string& name) {
  if (!context.config.norm_gain) return weighted::kNoGain;
  const auto declare = [&](const char* part, parallel::InitDistribution init, bool fused) {
    parallel::ParamSpec spec{name + part, {context.config.hidden_size}, init};
    spec.decay = false;
    spec.partial = context.tensor.sequence_parallel();
    spec.frozen = context.lora.on();
    spec.fuse_with_previous = fused;
    return registry.declare(std::move(spec));
  };
  using Kind = parallel::InitDistribution::Kind;
  const parallel::ParamId weight = declare(".weight", {Kind::ones, 1.0}, false);
  if (!context.config.layer_norm()) return {weight};
  declare(".bias", {Kind::zeros}, true);
  return {weight, 2};
}

}  // namespace trireme::model
