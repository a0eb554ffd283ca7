#include <nlohmann/json.hpp>

#include "checkpoint/hf/hf_family.hpp"

/// Mistral, Mixtral (Mistral with experts) and Phi-3, which all have one window for all layers.
namespace trireme::checkpoint {
namespace {

/// Reads a window of all layers. transformers has no window if the key is null.
void read_window(const Json& config, HfReader& reader, std::int64_t by_default,
                 model::ModelConfig& model) {
  const bool is_null =
      config.contains("sliding_window") ? config.at("sliding_window").is_null() : by_default == 0;
  if (!is_null) model.sliding_window = reader.size("sliding_window", by_default);
  drop_idle_window(model);
}

void read_mistral(const Json& config, HfReader& reader, model::ModelConfig& model) {
  read_window(config, reader, 4096, model);
}

/// Every layer has experts of the width intermediate_size. The weights of the chosen experts add up
/// to 1.
void read_mixtral(const Json& config, HfReader& reader, model::ModelConfig& model) {
  read_window(config, reader, 0, model);
  model.moe.moe_intermediate_size = model.intermediate_size;
  model.moe.norm_topk_prob = true;
  model.moe.num_experts = 1;  // the number of layers with experts is known before their number
  read_router(config, reader, 8, 2, model);
}

void write_mixtral(const model::ModelConfig& model, Json& json) {
  put_window(model, json);
  json["intermediate_size"] = model.moe.moe_intermediate_size;
  json["num_local_experts"] = model.moe.num_experts;
  json["num_experts_per_tok"] = model.moe.num_experts_per_tok;
  json["output_router_logits"] = false;
  json["router_jitter_noise"] = 0.0;
  json["router_aux_loss_coef"] = model.moe.router_aux_loss_coef * layers_with_aux_loss(model);
}

void read_phi3(const Json& config, HfReader& reader, model::ModelConfig& model) {
  read_window(config, reader, 0, model);
}

}  // namespace

const Family& mistral_family() {
  static const Family family{.model_type = "mistral",
                             .architecture = "MistralForCausalLM",
                             .defaults = {.num_kv_heads = 8, .max_positions = 131072},
                             .keys = {"sliding_window"},
                             .read = read_mistral,
                             .write = put_window};
  return family;
}

const Family& mixtral_family() {
  static const Family family{
      .model_type = "mixtral",
      .architecture = "MixtralForCausalLM",
      .defaults = {.num_kv_heads = 8, .max_positions = 131072, .rope_theta = 1e6, .norm_eps = 1e-5},
      .keys = {"sliding_window", "num_experts", "num_local_experts"},
      .renamed = {{".mlp.", ".block_sparse_moe."},
                  {".gate_proj.", ".w1."},
                  {".up_proj.", ".w3."},
                  {".down_proj.", ".w2."}},
      .read = read_mixtral,
      .write = write_mixtral};
  return family;
}

const Family& phi3_family() {
  static const Family family{
      .model_type = "phi3",
      .architecture = "Phi3ForCausalLM",
      .defaults = {.max_positions = 4096, .norm_eps = 1e-5, .original_max = 4096},
      .keys = {"sliding_window"},
      .fused = {{"self_attn.qkv_proj",
                 {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"}},
                {"mlp.gate_up_proj", {"mlp.gate_proj", "mlp.up_proj"}}},
      .partial_rotary = true,
      .read = read_phi3,
      .write = put_window};
  return family;
}

}  // namespace trireme::checkpoint
