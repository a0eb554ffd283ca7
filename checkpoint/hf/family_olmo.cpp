#include <nlohmann/json.hpp>

#include "checkpoint/hf/hf_family.hpp"

/// OLMo 2: norms of the outputs of attention and MLP instead of their inputs, and a norm over all
/// query heads and one over all key heads.
namespace trireme::checkpoint {
namespace {

void read_olmo2(const Json& /*config*/, HfReader& reader, model::ModelConfig& model) {
  read_attention_bias(reader, model);
  model.qk_norm = true;
  model.qk_norm_whole = true;
  model.pre_norms = false;
  model.post_norms = true;
}

void write_olmo2(const model::ModelConfig& model, Json& json) {
  json["attention_bias"] = model.qkv_bias;
}

}  // namespace

const Family& olmo2_family() {
  static const Family family{.model_type = "olmo2",
                             .architecture = "Olmo2ForCausalLM",
                             .defaults = {.max_positions = 2048, .norm_eps = 1e-5},
                             .keys = {"attention_bias"},
                             .renamed = {{".attention_output_norm.", ".post_attention_layernorm."},
                                         {".mlp_output_norm.", ".post_feedforward_layernorm."}},
                             .read = read_olmo2,
                             .write = write_olmo2};
  return family;
}

}  // namespace trireme::checkpoint
