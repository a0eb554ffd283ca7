#include "model/residual_mix.hpp"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.hpp"

namespace trireme::model {

ResidualMix::ResidualMix(parallel::ParamRegistry& registry, const LayerContext& context,
                         std::int64_t layer, const std::string& prefix)
    : registry_(registry) {
  const auto declare = [&](const char* name, double value) -> parallel::WeightRef {
    parallel::ParamSpec spec{prefix + name, {1}, {parallel::InitDistribution::Kind::ones, value}};
    spec.decay = false;
    spec.partial = context.tensor.sequence_parallel();
    spec.frozen = context.lora.on();
    return {registry_.declare(std::move(spec))};
  };
  for (const ResidualTerm& term : residual_terms(context.config, layer)) {
    weighted::MixWeights one{declare(term.factor_name, term.factor_init), {}, term.sign};
    if (term.scale_name != nullptr) one.scale = declare(term.scale_name, term.scale_init);
    terms_.push_back(one);
  }
}

at::Tensor ResidualMix::forward(const parallel::Microbatch& /*batch*/, const at::Tensor& x,
                                std::span<const at::Tensor> sources) const {
  return mixed(x, sources);
}

at::Tensor ResidualMix::mixed(const at::Tensor& x, std::span<const at::Tensor> sources) const {
  TRIREME_ASSERT(sources.size() == terms_.size());
  at::Tensor result = x;
  for (std::size_t i = 0; i < terms_.size(); ++i)
    result = weighted::mix(result, sources[i], registry_, terms_[i]);
  return result;
}

ResidualSources::ResidualSources(const ModelConfig& config) {
  for (std::int64_t layer = 0; layer <= config.num_layers; ++layer) {
    std::vector<std::int64_t>& of_layer = sources_.emplace_back();
    for (const ResidualTerm& term : residual_terms(config, layer)) {
      of_layer.push_back(term.source);
      kept_.emplace(term.source, at::Tensor());
    }
    if (config.mixes_first_values(layer)) of_layer.push_back(kFirstValues);
    if (config.gives_first_values(layer)) {
      gives_values_ = layer;
      kept_.emplace(kFirstValues, at::Tensor());
    }
  }
}

void ResidualSources::put(std::int64_t layer, const at::Tensor& x) {
  if (const auto kept = kept_.find(layer); kept != kept_.end()) kept->second = x;
}

at::Tensor ResidualSources::put_output(std::int64_t layer, const at::Tensor& output,
                                       const at::Tensor& input) {
  at::Tensor x = output;
  if (layer == gives_values_) {
    x = output.narrow(0, 0, input.numel()).view(input.sizes());
    put(kFirstValues, output.narrow(0, input.numel(), output.numel() - input.numel()));
  }
  put(layer, x);
  return x;
}

std::vector<at::Tensor> ResidualSources::of(std::int64_t layer) const {
  std::vector<at::Tensor> tensors;
  for (const std::int64_t source : sources_[static_cast<std::size_t>(layer)])
    tensors.push_back(kept_.at(source));
  return tensors;
}

std::vector<at::Tensor> ResidualSources::of_rows(std::int64_t layer, std::int64_t count,
                                                 const at::Tensor& rows) const {
  std::vector<at::Tensor> tensors = of(layer);
  for (at::Tensor& tensor : tensors)
    if (tensor.size(0) != count) tensor = tensor.index_select(0, rows);
  return tensors;
}

void ResidualSources::add_grads(std::int64_t layer, std::span<const at::Tensor> grads) {
  const std::vector<std::int64_t>& sources = sources_[static_cast<std::size_t>(layer)];
  TRIREME_ASSERT(grads.size() == sources.size());
  for (std::size_t i = 0; i < grads.size(); ++i) {
    at::Tensor& sum = kept_.at(sources[i]);
    sum = sum.defined() ? sum + grads[i] : grads[i];
  }
}

at::Tensor ResidualSources::whole_grad(std::int64_t layer, const at::Tensor& grad) {
  at::Tensor whole = grad;
  const auto kept = kept_.find(layer);
  if (kept != kept_.end() && kept->second.defined())
    whole = grad + std::exchange(kept->second, at::Tensor());
  if (layer != gives_values_) return whole;
  return at::cat({whole.flatten(), std::exchange(kept_.at(kFirstValues), at::Tensor())});
}

}  // namespace trireme::model
