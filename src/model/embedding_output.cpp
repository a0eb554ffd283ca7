#include "model/embedding_output.hpp"

#include <ATen/ATen.h>

#include "model/residual_terms.hpp"
#include "model/weight_source.hpp"

namespace trireme::model {

EmbeddingOutput::EmbeddingOutput(parallel::ParamRegistry& registry, const LayerContext& context)
    : context_(context), registry_(registry) {
  if (!context.config.smear) return;
  const auto declare = [&](const char* name, std::int64_t size,
                           parallel::InitDistribution init) -> parallel::WeightRef {
    parallel::ParamSpec spec{name, {size}, init};
    spec.decay = false;
    spec.partial = context.tensor.sequence_parallel();
    spec.frozen = context.lora.on();
    return {registry_.declare(std::move(spec))};
  };
  using enum parallel::InitDistribution::Kind;
  const parallel::WeightRef gate =
      declare("model.smear_gate.weight", smear_gate_inputs(context.config), {uniform, 0.01, 0.01});
  smear_ = weighted::SmearWeights{gate, declare("model.smear_scalar", 1, {zeros})};
}

at::Tensor EmbeddingOutput::normed(const at::Tensor& x) const {
  if (!context_.config.embed_norm) return x;
  return weighted::norm(x, registry_, weighted::kNoGain,
                        {ops::NormKind::rms, context_.config.norm_eps, context_.path});
}

at::Tensor EmbeddingOutput::forward(const parallel::Microbatch& /*batch*/, const at::Tensor& x,
                                    std::span<const at::Tensor> sources) const {
  const at::Tensor own = normed(x);
  return smears() ? weighted::smear(own, normed(sources.front()), registry_, *smear_) : own;
}

}  // namespace trireme::model
