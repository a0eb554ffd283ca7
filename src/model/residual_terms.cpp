#include "model/residual_terms.hpp"

#include <algorithm>

namespace trireme::model {
namespace {

/// One option of the residual stream.
struct OptionRow {
  /// Returns true if the layer has the term.
  bool (*applies)(const ModelConfig& config, std::int64_t layer);
  ResidualTerm (*term)(const ModelConfig& config, std::int64_t layer);
};

/// Returns the position of a layer, from 0 (first layer) to 1 (last layer).
double depth_of(const ModelConfig& config, std::int64_t layer) {
  return config.num_layers < 2
             ? 0
             : static_cast<double>(layer) / static_cast<double>(config.num_layers - 1);
}

ResidualTerm skip(const ModelConfig& config, std::int64_t layer) {
  return {.source = config.num_layers - 1 - layer, .factor_name = "skip_scalar", .factor_init = 1};
}

ResidualTerm embedding(const ModelConfig& config, std::int64_t layer) {
  const bool uniform = config.init == "uniform";
  const double depth = depth_of(config, layer);
  return {.source = kEmbeddingSource,
          .factor_name = "embedding_scalar",
          .factor_init = uniform ? 0.20 - 0.15 * depth : 0,
          .scale_name = "residual_scalar",
          .scale_init = uniform ? 1.15 - 0.10 * depth : 1};
}

ResidualTerm backout(const ModelConfig& config, std::int64_t /*layer*/) {
  return {.source = config.num_layers / 2,
          .factor_name = "backout_scalar",
          .factor_init = 0.2,
          .sign = -1};
}

constexpr OptionRow kOptions[] = {
    {[](const ModelConfig& c, std::int64_t layer) {
       return c.skips && layer < c.num_layers && layer >= c.num_layers - c.num_layers / 2;
     },
     skip},
    {[](const ModelConfig& c, std::int64_t layer) {
       return c.residual_scalars && layer < c.num_layers;
     },
     embedding},
    {[](const ModelConfig& c, std::int64_t layer) { return c.backout && layer == c.num_layers; },
     backout},
};

}  // namespace

std::vector<ResidualTerm> residual_terms(const ModelConfig& config, std::int64_t layer) {
  std::vector<ResidualTerm> terms;
  for (const OptionRow& option : kOptions)
    if (option.applies(config, layer)) terms.push_back(option.term(config, layer));
  return terms;
}

bool has_residual_terms(const ModelConfig& config) {
  return config.skips || config.residual_scalars || config.backout;
}

std::int64_t value_gate_inputs(const ModelConfig& config) {
  return std::min<std::int64_t>(12, config.hidden_size);
}

std::int64_t smear_gate_inputs(const ModelConfig& config) {
  return std::min<std::int64_t>(24, config.hidden_size);
}

}  // namespace trireme::model
