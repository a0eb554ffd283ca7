#include <nlohmann/json.hpp>

#include "checkpoint/hf/hf_family.hpp"
#include "model/layer_list.hpp"

/// Llama, and SmolLM3, which is Llama with layers without rotary embedding.
namespace trireme::checkpoint {
namespace {

void read_llama(const Json&, HfReader& reader, model::ModelConfig& model) {
  read_attention_bias(reader, model);
  model.mlp_bias = reader.flag("mlp_bias", false);
}

void write_llama(const model::ModelConfig& model, Json& json) {
  json["attention_bias"] = model.qkv_bias;
  json["mlp_bias"] = model.mlp_bias;
  json["pretraining_tp"] = 1;
}

/// Returns the layers with rotary embedding: the ones of no_rope_layers, or all except every
/// no_rope_layer_interval-th.
std::vector<bool> rope_layers(const Json& config, HfReader& reader, std::int64_t num_layers) {
  const std::int64_t interval = reader.size("no_rope_layer_interval", 4);
  std::vector<bool> rope;
  for (std::int64_t layer = 0; layer < num_layers; ++layer)
    rope.push_back(interval == 0 || (layer + 1) % interval != 0);
  const auto listed = config.find("no_rope_layers");
  if (listed == config.end() || listed->is_null()) return rope;
  bool good = listed->is_array() && std::ssize(*listed) >= num_layers;
  for (std::size_t layer = 0; good && layer < rope.size(); ++layer) {
    good = listed->at(layer) == 0 || listed->at(layer) == 1;
    rope[layer] = listed->at(layer) == 1;
  }
  if (!good)
    reader.problem("no_rope_layers", formatted(" = {}, must be 0 or 1 for each of {} layers",
                                               listed->dump().substr(0, 200), num_layers));
  return rope;
}

void read_smollm3(const Json& config, HfReader& reader, model::ModelConfig& model) {
  read_llama(config, reader, model);
  const std::vector<bool> rope = rope_layers(config, reader, model.num_layers);
  const bool is_null = !config.contains("sliding_window") || config.at("sliding_window").is_null();
  const std::int64_t window =
      reader.flag("use_sliding_window", false) && !is_null ? reader.size("sliding_window") : 0;
  std::vector<std::int64_t> without;
  std::vector<bool> windows;
  for (std::size_t layer = 0; layer < rope.size(); ++layer) {
    if (!rope[layer]) without.push_back(static_cast<std::int64_t>(layer));
    windows.push_back(window > 0 && !rope[layer]);
  }
  model.no_rope_layers = model::layers_text(without);
  read_layer_windows(config, reader, window, windows, model);
  drop_idle_window(model);
}

void write_smollm3(const model::ModelConfig& model, Json& json) {
  write_llama(model, json);
  json["no_rope_layers"] = Json::array();
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    json["no_rope_layers"].push_back(model.has_rope(layer) ? 1 : 0);
  json["use_sliding_window"] = model.sliding_window > 0;
  put_window(model, json);
  put_layer_types(model, json);
}

}  // namespace

const Family& llama_family() {
  static const Family family{.model_type = "llama",
                             .architecture = "LlamaForCausalLM",
                             .defaults = {.max_positions = 2048},
                             .keys = {"attention_bias", "mlp_bias"},
                             .read = read_llama,
                             .write = write_llama};
  return family;
}

const Family& smollm3_family() {
  static const Family family{
      .model_type = "smollm3",
      .architecture = "SmolLM3ForCausalLM",
      .defaults = {.num_kv_heads = 4, .rope_theta = 2e6, .tie_embeddings = true},
      .keys = {"attention_bias", "mlp_bias", "use_sliding_window", "sliding_window", "layer_types",
               "no_rope_layers"},
      .read = read_smollm3,
      .write = write_smollm3};
  return family;
}

}  // namespace trireme::checkpoint
