#include "checkpoint/hf/hf_family.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "core/join.hpp"
#include "core/number.hpp"
#include "model/layer_list.hpp"

namespace trireme::checkpoint {

std::span<const Family* const> hf_families() {
  static const std::array<const Family*, 16> families{
      &qwen3_family(),    &qwen3_moe_family(), &llama_family(),      &mistral_family(),
      &qwen2_family(),    &mixtral_family(),   &smollm3_family(),    &phi3_family(),
      &gemma3_family(),   &gemma2_family(),    &olmo2_family(),      &gpt2_family(),
      &gpt_neox_family(), &gemma_family(),     &starcoder2_family(), &stablelm_family()};
  return families;
}

std::string hf_family_names() {
  return joined(hf_families(), ", ", [](const Family* one) { return one->model_type; });
}

const Family* find_family(std::string_view model_type) {
  const auto families = hf_families();
  const auto found = std::ranges::find(families, model_type,
                                       [](const Family* family) { return family->model_type; });
  return found == families.end() ? nullptr : *found;
}

std::string Family::key(std::string_view ours) const {
  const auto found = std::ranges::find(renamed_keys, ours, &RenamedPart::ours);
  return std::string(found == renamed_keys.end() ? ours : found->file);
}

void read_attention_bias(HfReader& reader, model::ModelConfig& model) {
  model.qkv_bias = reader.flag("attention_bias", false);
  model.attention_output_bias = model.qkv_bias;
}

void read_layer_windows(const Json& config, HfReader& reader, std::int64_t window,
                        const std::vector<bool>& has_window, model::ModelConfig& model) {
  std::vector<bool> windows = has_window;
  const auto types = config.find("layer_types");
  if (types != config.end() && !types->is_null()) {
    const auto known = [](const Json& one) {
      return one == "full_attention" || one == "sliding_attention";
    };
    if (!types->is_array() || std::ssize(*types) != model.num_layers ||
        !std::ranges::all_of(*types, known))
      return reader.problem("layer_types",
                            formatted(" = {}, must be \"full_attention\" or \"sliding_attention\" "
                                      "for each of {} layers",
                                      types->dump().substr(0, 200), model.num_layers));
    windows.clear();
    for (const Json& one : *types) windows.push_back(one == "sliding_attention");
  }
  std::vector<std::int64_t> full;
  for (std::size_t layer = 0; layer < windows.size(); ++layer)
    if (!windows[layer]) full.push_back(static_cast<std::int64_t>(layer));
  if (std::ssize(full) == model.num_layers) return;
  if (window == 0)
    return reader.problem("layer_types", " has sliding_attention, but sliding_window is off");
  model.sliding_window = window;
  model.full_attention_layers = model::layers_text(full);
}

void drop_idle_window(model::ModelConfig& model) {
  if (model.sliding_window < model.max_seq_len) return;
  model.sliding_window = 0;
  model.full_attention_layers.clear();
}

void put_window(const model::ModelConfig& model, Json& config) {
  config["sliding_window"] = model.sliding_window > 0 ? Json(model.sliding_window) : Json(nullptr);
}

void put_layer_types(const model::ModelConfig& model, Json& config) {
  Json types = Json::array();
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    types.push_back(model.has_window(layer) ? "sliding_attention" : "full_attention");
  config["layer_types"] = types;
}

double layers_with_aux_loss(const model::ModelConfig& model) {
  return static_cast<double>(
      std::max<std::int64_t>(1, model.moe.layers_with_experts(model.num_layers)));
}

void read_router(const Json& config, HfReader& reader, std::int64_t num_experts,
                 std::int64_t num_experts_per_tok, model::ModelConfig& model) {
  model::MoeConfig& moe = model.moe;
  // transformers 5 writes num_local_experts, older versions of Qwen3 MoE num_experts.
  moe.num_experts = reader.size(
      config.contains("num_local_experts") ? "num_local_experts" : "num_experts", num_experts);
  moe.num_experts_per_tok = reader.size("num_experts_per_tok", num_experts_per_tok);
  moe.router_aux_loss = "micro_batch";
  const double coef = reader.number(config, "router_aux_loss_coef", 0.001);
  if (coef < 0)
    reader.problem("router_aux_loss_coef",
                   formatted(" = {}, must be 0 or more", number_text(coef)));
  moe.router_aux_loss_coef = coef / layers_with_aux_loss(model);
}

}  // namespace trireme::checkpoint
