#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/hf/hf_family.hpp"

/// Qwen2 and Qwen2.5, Qwen3, Qwen3 with experts.
namespace trireme::checkpoint {
namespace {

/// A window applies from layer max_window_layers on.
void read_windows(const Json& config, HfReader& reader, model::ModelConfig& model) {
  const bool on = reader.flag("use_sliding_window", false);
  const bool is_null = config.contains("sliding_window") && config.at("sliding_window").is_null();
  const std::int64_t window = on && !is_null ? reader.size("sliding_window", 4096) : 0;
  const double first = reader.number(config, "max_window_layers", 28);
  std::vector<bool> windows;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    windows.push_back(window > 0 && static_cast<double>(layer) >= first);
  read_layer_windows(config, reader, window, windows, model);
  drop_idle_window(model);
}

void write_windows(const model::ModelConfig& model, Json& json) {
  std::int64_t full = 0;
  while (full < model.num_layers && !model.has_window(full)) ++full;
  json["use_sliding_window"] = model.sliding_window > 0;
  json["max_window_layers"] = full;
  put_window(model, json);
  if (model.sliding_window > 0) put_layer_types(model, json);
}

void read_qwen2(const Json& config, HfReader& reader, model::ModelConfig& model) {
  model.qkv_bias = true;
  read_windows(config, reader, model);
}

void read_qwen3(const Json& config, HfReader& reader, model::ModelConfig& model) {
  model.qk_norm = true;
  read_attention_bias(reader, model);
  read_windows(config, reader, model);
}

void write_qwen3(const model::ModelConfig& model, Json& json) {
  json["attention_bias"] = model.qkv_bias;
  write_windows(model, json);
}

/// Reads the settings of experts in every layer except the first ones.
void read_qwen3_moe(const Json& config, HfReader& reader, model::ModelConfig& model) {
  model.qk_norm = true;
  read_attention_bias(reader, model);
  model::MoeConfig& moe = model.moe;
  moe.moe_intermediate_size = reader.size("moe_intermediate_size", 768);
  moe.norm_topk_prob = reader.flag("norm_topk_prob", false);
  if (const auto step = reader.size("decoder_sparse_step", 1); step != 1)
    reader.problem("decoder_sparse_step",
                   formatted(" = {}, must be 1: experts in every layer", step));
  reader.mark("mlp_only_layers");
  reader.mark("max_window_layers");  // has an effect only with use_sliding_window
  Json dense = config.value("mlp_only_layers", Json());
  if (dense.is_null()) dense = Json::array();
  if (dense.is_array()) std::sort(dense.begin(), dense.end());
  for (const Json& layer : dense.is_array() ? dense : Json::array({-1})) {
    if (layer != moe.first_dense_layers) {
      reader.problem("mlp_only_layers",
                     formatted(" = {}, must be a list of the first layers", dense.dump()));
      break;
    }
    ++moe.first_dense_layers;
  }
  moe.num_experts = 1;  // the number of layers with experts is known before their number
  read_router(config, reader, 128, 8, model);
}

void write_qwen3_moe(const model::ModelConfig& model, Json& json) {
  const model::MoeConfig& moe = model.moe;
  write_qwen3(model, json);
  json["num_experts"] = moe.num_experts;
  json["num_experts_per_tok"] = moe.num_experts_per_tok;
  json["moe_intermediate_size"] = moe.moe_intermediate_size;
  json["norm_topk_prob"] = moe.norm_topk_prob;
  json["decoder_sparse_step"] = 1;
  json["mlp_only_layers"] = Json::array();
  for (std::int64_t layer = 0; layer < moe.first_dense_layers; ++layer)
    json["mlp_only_layers"].push_back(layer);
  json["output_router_logits"] = false;
  json["router_aux_loss_coef"] = moe.router_aux_loss_coef * layers_with_aux_loss(model);
}

}  // namespace

const Family& qwen2_family() {
  static const Family family{.model_type = "qwen2",
                             .architecture = "Qwen2ForCausalLM",
                             .defaults = {.num_kv_heads = 32},
                             .keys = {"use_sliding_window", "sliding_window", "layer_types"},
                             .read = read_qwen2,
                             .write = write_windows};
  return family;
}

const Family& qwen3_family() {
  static const Family family{
      .model_type = "qwen3",
      .architecture = "Qwen3ForCausalLM",
      .defaults = {.num_kv_heads = 32, .head_dim = 128},
      .keys = {"attention_bias", "use_sliding_window", "sliding_window", "layer_types"},
      .read = read_qwen3,
      .write = write_qwen3};
  return family;
}

/// The window of this family is not supported; use_sliding_window turns it on.
const Family& qwen3_moe_family() {
  static const Family family{
      .model_type = "qwen3_moe",
      .architecture = "Qwen3MoeForCausalLM",
      .defaults = {.num_kv_heads = 4},
      .keys = {"attention_bias", "sliding_window", "num_experts", "num_local_experts"},
      .read = read_qwen3_moe,
      .write = write_qwen3_moe};
  return family;
}

}  // namespace trireme::checkpoint
