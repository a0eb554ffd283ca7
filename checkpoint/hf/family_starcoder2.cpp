#include <nlohmann/json.hpp>

#include "checkpoint/hf/hf_family.hpp"

/// StarCoder2 and StableLM: LayerNorm with rotary embedding. StarCoder2 has a plain MLP, biases and a
/// window for all layers. StableLM has a gated MLP and a partial rotary embedding.
namespace trireme::checkpoint {
namespace {

void read_starcoder2(const Json& config, HfReader& reader, model::ModelConfig& model) {
  reader.must_be_off("head_dim");
  model.norm = "layer";
  model.mlp = "plain";
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = reader.flag("use_bias", true);
  const bool has_window =
      config.contains("sliding_window") && !config.at("sliding_window").is_null();
  if (has_window) model.sliding_window = reader.size("sliding_window");
  drop_idle_window(model);
  model.dropout = reader.number(config, "residual_dropout", 0.0);
  if (reader.number(config, "embedding_dropout", 0.0) != model.dropout)
    reader.problem("embedding_dropout", " and residual_dropout must be equal");
}

void write_starcoder2(const model::ModelConfig& model, Json& json) {
  json.erase("head_dim");
  json["use_bias"] = model.mlp_bias;
  json["residual_dropout"] = model.dropout;
  json["embedding_dropout"] = model.dropout;
  put_window(model, json);
}

void read_stablelm(const Json&, HfReader& reader, model::ModelConfig& model) {
  reader.must_be_off("head_dim");
  model.norm = "layer";
  model.qkv_bias = reader.flag("use_qkv_bias", false);
}

void write_stablelm(const model::ModelConfig& model, Json& json) {
  json.erase("head_dim");
  json["use_qkv_bias"] = model.qkv_bias;
}

}  // namespace

const Family& starcoder2_family() {
  static const Family family{
      .model_type = "starcoder2",
      .architecture = "Starcoder2ForCausalLM",
      .defaults = {.num_kv_heads = 2,
                   .max_positions = 4096,
                   .norm_eps = 1e-5,
                   .tie_embeddings = true,
                   .activation = "gelu_pytorch_tanh"},
      .keys = {"use_bias", "sliding_window"},
      .renamed_keys = {{"rms_norm_eps", "norm_epsilon"}},
      .renamed = {{".mlp.up_proj.", ".mlp.c_fc."}, {".mlp.down_proj.", ".mlp.c_proj."}},
      .read = read_starcoder2,
      .write = write_starcoder2};
  return family;
}

const Family& stablelm_family() {
  static const Family family{.model_type = "stablelm",
                             .architecture = "StableLmForCausalLM",
                             .defaults = {.num_kv_heads = 32,
                                          .max_positions = 4096,
                                          .norm_eps = 1e-5,
                                          .rotary_share = 0.25},
                             .keys = {"use_qkv_bias"},
                             .renamed_keys = {{"rms_norm_eps", "layer_norm_eps"}},
                             .partial_rotary = true,
                             .read = read_stablelm,
                             .write = write_stablelm};
  return family;
}

}  // namespace trireme::checkpoint
