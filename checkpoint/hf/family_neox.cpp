#include <nlohmann/json.hpp>

#include "checkpoint/hf/hf_family.hpp"

/// GPT-NeoX and Pythia: LayerNorm, a plain MLP, biases, partial rotary embedding; attention and MLP
/// read the same input. The file stores queries, keys and values head by head.
namespace trireme::checkpoint {
namespace {

void read_neox(const Json& config, HfReader& reader, model::ModelConfig& model) {
  reader.mark("classifier_dropout");
  for (const char* key : {"num_key_value_heads", "head_dim"}) reader.must_be_off(key);
  model.norm = "layer";
  model.mlp = "plain";
  model.parallel_residual = reader.flag("use_parallel_residual", true);
  model.qkv_bias = model.attention_output_bias = reader.flag("attention_bias", true);
  model.mlp_bias = true;
  model.dropout = reader.number(config, "hidden_dropout", 0.0);
}

void write_neox(const model::ModelConfig& model, Json& json) {
  for (const char* key : {"num_key_value_heads", "head_dim"}) json.erase(key);
  json["use_parallel_residual"] = model.parallel_residual;
  json["attention_bias"] = model.qkv_bias;
  json["hidden_dropout"] = model.dropout;
}

}  // namespace

const Family& gpt_neox_family() {
  static const Family family{
      .model_type = "gpt_neox",
      .architecture = "GPTNeoXForCausalLM",
      .defaults = {.max_positions = 2048,
                   .norm_eps = 1e-5,
                   .activation = "gelu",
                   .rotary_share = 0.25},
      .keys = {"attention_bias", "use_parallel_residual", "hidden_dropout"},
      .renamed_keys = {{"rms_norm_eps", "layer_norm_eps"},
                       {"rope_theta", "rotary_emb_base"},
                       {"partial_rotary_factor", "rotary_pct"}},
      .fused = {{".attention.query_key_value.",
                 {".self_attn.q_proj.", ".self_attn.k_proj.", ".self_attn.v_proj."}}},
      .renamed = {{"model.embed_tokens.", "gpt_neox.embed_in."},
                  {"model.layers.", "gpt_neox.layers."},
                  {"model.norm.", "gpt_neox.final_layer_norm."},
                  {"lm_head.", "embed_out."},
                  {".self_attn.o_proj.", ".attention.dense."},
                  {".mlp.up_proj.", ".mlp.dense_h_to_4h."},
                  {".mlp.down_proj.", ".mlp.dense_4h_to_h."}},
      .ignored = {".attention.bias", ".attention.masked_bias"},
      .interleaved_qkv = true,
      .partial_rotary = true,
      .read = read_neox,
      .write = write_neox};
  return family;
}

}  // namespace trireme::checkpoint
