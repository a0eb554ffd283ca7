#include "model/depth_rule.hpp"

#include <algorithm>
#include <cmath>

#include "core/problems.hpp"
#include "model/residual_terms.hpp"

namespace trireme::model {
namespace {

constexpr std::int64_t kReferenceDepth = 12;
constexpr double kReferenceWidth = 768;
constexpr double kReferenceBatch = 1 << 19;
constexpr double kReferenceDecay = 0.28;
constexpr double kBatchExponent = 0.383;

/// Returns the model of depth 12 with the vocabulary of `config`.
ModelConfig reference_of(const ModelConfig& config) {
  ModelConfig reference = model_preset("nanochat");
  reference.depth = kReferenceDepth;
  reference.vocab_size = config.vocab_size;
  resolve(reference, reference.vocab_size);
  return reference;
}

}  // namespace

bool check_depth(const ModelConfig& config, bool derives_head_dim, Problems& problems) {
  if (config.depth < 0 || config.depth > DepthRule::kMaxDepth ||
      (config.depth == 0 && config.preset == "nanochat" && config.num_layers == 0)) {
    problems.add("model.depth", config.depth,
                 formatted("must be in [1, {}]", DepthRule::kMaxDepth));
    return false;
  }
  if (config.depth > 0 && derives_head_dim && config.num_heads > 0 &&
      config.hidden_size % config.num_heads != 0) {
    problems.add("model.num_heads", config.num_heads,
                 formatted("must divide model.hidden_size = {} (of model.depth = {}), or "
                           "model.head_dim must be set",
                           config.hidden_size, config.depth));
  }
  return true;
}

double multiplied_parameters(const ModelConfig& config) {
  std::int64_t others = config.tie_embeddings ? 0 : config.vocab_size * config.hidden_size;
  others += config.num_value_embeddings() * config.value_table_size();
  for (std::int64_t layer = 0; layer <= config.num_layers; ++layer)
    for (const ResidualTerm& term : residual_terms(config, layer))
      others += term.scale_name != nullptr ? 2 : 1;
  if (config.value_residual) others += config.num_layers - 1;
  if (config.smear) others += smear_gate_inputs(config) + 1;
  return static_cast<double>(config.num_parameters() - others);
}

DepthRule depth_rule(const ModelConfig& config, std::int64_t batch_tokens) {
  DepthRule rule;
  rule.parameters = multiplied_parameters(config);
  const double larger = rule.parameters / multiplied_parameters(reference_of(config));
  rule.batch_tokens = batch_tokens;
  if (batch_tokens == 0) {
    const double exact = kReferenceBatch * std::pow(larger, kBatchExponent);
    rule.batch_tokens = std::int64_t{1} << std::lround(std::log2(exact));
  }
  const auto batch = static_cast<double>(rule.batch_tokens);
  rule.steps = std::max<std::int64_t>(
      1, static_cast<std::int64_t>(
             std::floor(std::floor(DepthRule::kTokensPerParam * rule.parameters) / batch)));
  rule.rate_factor = std::sqrt(batch / kReferenceBatch);
  rule.width_factor = std::pow(static_cast<double>(config.hidden_size) / kReferenceWidth, -0.5);
  rule.weight_decay = kReferenceDecay * rule.rate_factor / larger;
  return rule;
}

}  // namespace trireme::model
