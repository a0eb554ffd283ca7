#include <nlohmann/json.hpp>

#include "checkpoint/hf/hf_family.hpp"

/// GPT-2: LayerNorm, learned positions, a plain MLP, biases. The file stores matrices of blocks
/// transposed (Conv1D), and queries, keys and values as one.
namespace trireme::checkpoint {
namespace {

/// Keys of heads that classify texts, and of older versions.
constexpr const char* kOtherHeads[] = {
    "summary_type",           "summary_use_proj",      "summary_activation",     "n_ctx",
    "summary_proj_to_labels", "summary_first_dropout", "reorder_and_upcast_attn"};

void read_gpt2(const Json& config, HfReader& reader, model::ModelConfig& model) {
  for (const char* key : kOtherHeads) reader.mark(key);
  for (const char* key : {"num_key_value_heads", "head_dim", "add_cross_attention"})
    reader.must_be_off(key);
  model.norm = "layer";
  model.mlp = "plain";
  model.position = "learned";
  model.qkv_bias = model.attention_output_bias = model.mlp_bias = true;
  if (!reader.flag("scale_attn_weights", true)) model.attention_scale_dim = 1;
  model.attention_dropout = reader.number(config, "attn_pdrop", 0.1);
  model.dropout = reader.number(config, "resid_pdrop", 0.1);
  if (reader.number(config, "embd_pdrop", 0.1) != model.dropout)
    reader.problem("embd_pdrop", " and resid_pdrop must be equal");
}

void write_gpt2(const model::ModelConfig& model, Json& json) {
  for (const char* key : {"num_key_value_heads", "head_dim", "rope_theta", "rope_scaling",
                          "rope_parameters", "partial_rotary_factor"})
    json.erase(key);
  json["resid_pdrop"] = model.dropout;
  json["embd_pdrop"] = model.dropout;
  json["scale_attn_weights"] = model.attention_scale_dim != 1;
}

}  // namespace

const Family& gpt2_family() {
  static const Family family{
      .model_type = "gpt2",
      .architecture = "GPT2LMHeadModel",
      .defaults = {.max_positions = 1024,
                   .norm_eps = 1e-5,
                   .tie_embeddings = true,
                   .activation = "gelu_new",
                   .width_factor = 4},
      .activation_key = "activation_function",
      .keys = {"resid_pdrop", "embd_pdrop", "attn_pdrop"},
      .renamed_keys = {{"hidden_size", "n_embd"},
                       {"num_hidden_layers", "n_layer"},
                       {"num_attention_heads", "n_head"},
                       {"intermediate_size", "n_inner"},
                       {"max_position_embeddings", "n_positions"},
                       {"hidden_act", "activation_function"},
                       {"rms_norm_eps", "layer_norm_epsilon"},
                       {"attention_dropout", "attn_pdrop"}},
      .fused = {{".attn.c_attn.",
                 {".self_attn.q_proj.", ".self_attn.k_proj.", ".self_attn.v_proj."}}},
      .renamed = {{"model.embed_tokens.", "transformer.wte."},
                  {"model.embed_positions.", "transformer.wpe."},
                  {"model.layers.", "transformer.h."},
                  {"model.norm.", "transformer.ln_f."},
                  {".input_layernorm.", ".ln_1."},
                  {".post_attention_layernorm.", ".ln_2."},
                  {".self_attn.o_proj.", ".attn.c_proj."},
                  {".mlp.up_proj.", ".mlp.c_fc."},
                  {".mlp.down_proj.", ".mlp.c_proj."}},
      .ignored = {".attn.bias", ".attn.masked_bias"},
      .optional_prefix = "transformer.",
      .transposed = true,
      .read = read_gpt2,
      .write = write_gpt2};
  return family;
}

}  // namespace trireme::checkpoint
