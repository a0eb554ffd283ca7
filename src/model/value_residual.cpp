#include "model/value_residual.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "model/block.hpp"

namespace trireme::model {

ValueResidual::ValueResidual(parallel::ParamRegistry& registry, const LayerContext& context,
                             std::int64_t layer, const std::string& prefix)
    : registry_(registry), gives_(context.config.gives_first_values(layer)) {
  const ModelConfig& c = context.config;
  width_ = local_heads(c, context.tensor.size(), context.tensor.rank()).key.count() * c.head_dim;
  if (!c.mixes_first_values(layer)) return;
  parallel::ParamSpec spec{
      prefix + "self_attn.value_scalar", {1}, {parallel::InitDistribution::Kind::ones, 0.5}};
  spec.decay = false;
  spec.partial = true;  // each rank of tp has the gradient of its own heads
  spec.frozen = context.lora.on();
  factor_ = weighted::MixWeights{{registry_.declare(std::move(spec))}, {}, 1};
}

at::Tensor ValueResidual::mixed(const at::Tensor& qkv, std::span<const at::Tensor> sources) const {
  if (!factor_) return qkv;
  const std::int64_t others = qkv.size(-1) - width_;
  const at::Tensor own = qkv.narrow(-1, others, width_);
  const at::Tensor difference = sources.back().view(own.sizes()) - own;
  return at::cat({qkv.narrow(-1, 0, others), weighted::mix(own, difference, registry_, *factor_)},
                 -1);
}

at::Tensor ValueResidual::joined(const at::Tensor& y, const at::Tensor& qkv) const {
  if (!gives_) return y;
  return at::cat({y.flatten(), qkv.narrow(-1, qkv.size(-1) - width_, width_).flatten()});
}

}  // namespace trireme::model
