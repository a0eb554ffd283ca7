#include "model/lora/lora_config.hpp"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/problems.hpp"

namespace trireme::model {
namespace {

constexpr std::int64_t kMaxRank = 65536;
constexpr std::string_view kAllLinear = "all-linear";
constexpr std::string_view kSquare = "square";

std::vector<std::string> names_between_commas(const std::string& text) {
  std::vector<std::string> names = split(text, ',');
  for (std::string& name : names) std::erase(name, ' ');
  return names;
}

}  // namespace

LinearShapes block_linears(const ModelConfig& model) {
  const std::int64_t hidden = model.hidden_size;
  const std::int64_t queries = model.num_heads * model.head_dim;
  const std::int64_t keys = model.num_kv_heads * model.head_dim;
  const std::int64_t width = model.intermediate_size;
  return {{{"self_attn.q_proj", queries, hidden},
           {"self_attn.k_proj", keys, hidden},
           {"self_attn.v_proj", keys, hidden},
           {"self_attn.o_proj", hidden, queries},
           {"mlp.gate_proj", model.gated_mlp() ? width : 0, hidden},
           {"mlp.up_proj", width, hidden},
           {"mlp.down_proj", hidden, width}}};
}

double LoraConfig::scale() const {
  TRIREME_ASSERT(on());
  const auto size = static_cast<double>(rank);
  return (alpha == 0 ? size : alpha) / (rslora ? std::sqrt(size) : size);
}

std::array<bool, 7> lora_targets(const LoraConfig& config, const ModelConfig& model) {
  std::array<bool, 7> targets{};
  if (!config.on()) return targets;
  const LinearShapes linears = block_linears(model);
  const std::vector<std::string> names = names_between_commas(config.targets);
  for (std::size_t i = 0; i < linears.size(); ++i) {
    if (model.moe.on() && i >= static_cast<std::size_t>(BlockLinear::gate)) break;
    if (linears[i].rows == 0) continue;
    if (config.targets == kAllLinear) {
      targets[i] = true;
    } else if (config.targets == kSquare) {
      targets[i] = linears[i].rows == linears[i].columns;
    } else {
      targets[i] = std::ranges::find(names, linears[i].name()) != names.end();
    }
  }
  return targets;
}

void check(const LoraConfig& config, Problems& problems) {
  if (config.rank < 0 || config.rank > kMaxRank)
    problems.add("lora.rank", config.rank, formatted("must be in [0 (off), {}]", kMaxRank));
  if (!std::isfinite(config.alpha) || config.alpha < 0)
    problems.add("lora.alpha", config.alpha, "must be above 0, or 0 to use the rank");
  if (!(config.dropout >= 0 && config.dropout < 1))
    problems.add("lora.dropout", config.dropout, "must be in [0, 1)");
  if (config.targets == kAllLinear || config.targets == kSquare) return;
  std::vector<std::string> known;
  for (const LinearShape& one : block_linears({})) known.emplace_back(one.name());
  for (const std::string& name : names_between_commas(config.targets)) {
    if (std::ranges::find(known, name) != known.end()) continue;
    problems.add("lora.targets", name.empty() ? "''" : name,
                 formatted("must be {}, {}, or a comma-separated list of {}", kAllLinear, kSquare,
                           joined(known, ", ")));
  }
}

void check_targets(const LoraConfig& config, const ModelConfig& model, Problems& problems) {
  if (!config.on() || config.targets == kAllLinear) return;
  if (model.moe.on() && config.targets != kSquare) {
    for (const std::string& name : names_between_commas(config.targets)) {
      if (name != "gate_proj" && name != "up_proj" && name != "down_proj") continue;
      problems.add(
          "lora.targets", name,
          "is not available in a model with experts; allowed: q_proj, k_proj, v_proj, o_proj");
    }
  }
  const std::vector<std::string> names = names_between_commas(config.targets);
  if (!model.gated_mlp() && std::ranges::find(names, "gate_proj") != names.end())
    problems.add("lora.targets", "gate_proj", "is not available with model.mlp = plain");
  if (config.targets != kSquare) return;
  if (std::ranges::count(lora_targets(config, model), true) == 0) {
    problems.add(
        "lora.targets", config.targets,
        "but the model has no square linear layer: use all-linear or names (q_proj,v_proj)");
  }
}

std::int64_t num_lora_parameters(const LoraConfig& config, const ModelConfig& model) {
  const LinearShapes linears = block_linears(model);
  const std::array<bool, 7> targets = lora_targets(config, model);
  std::int64_t count = 0;
  for (std::size_t i = 0; i < linears.size(); ++i)
    if (targets[i]) count += config.rank * (linears[i].rows + linears[i].columns);
  return count * model.num_layers;
}

TrainedParts trained_parts(const LoraConfig& config, const ModelConfig& model,
                           bool has_reward_head) {
  return {.has_vocabulary = !has_reward_head,
          .adapter_weights = num_lora_parameters(config, model)};
}

}  // namespace trireme::model
