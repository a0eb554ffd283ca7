#include <cmath>
#include <nlohmann/json.hpp>

#include "checkpoint/hf/hf_family.hpp"

/// Gemma, Gemma 2 and Gemma 3 (text). The file stores the weights of norms minus 1. In Gemma 3, layers
/// with a window have rotary frequencies of their own. Gemma 2 has soft-caps and no QK norm. Gemma has neither of them, no
/// norms of outputs and no window.
namespace trireme::checkpoint {
namespace {

/// Reads the base of the frequencies in layers with a window.
double local_theta(const Json& config, HfReader& reader) {
  const double theta = reader.number(config, "rope_local_base_freq", 10000.0);
  const Json parameters = config.value("rope_parameters", Json());
  if (!parameters.is_object()) return theta;
  const Json local = parameters.value("sliding_attention", Json());
  if (!local.is_object()) return theta;
  if (local.value("rope_type", Json("default")) != "default")
    reader.problem("rope_parameters",
                   formatted(".sliding_attention = {} is not supported, its rope_type must be "
                             "\"default\"",
                             local.dump()));
  return reader.number(local, "rope_theta", theta);
}

/// Reads the keys of both families. Every `pattern`-th layer has no window.
void read_gemma(const Json& config, HfReader& reader, std::int64_t pattern,
                model::ModelConfig& model) {
  reader.mark("hidden_act");  // published files have this key, which transformers does not read
  model.post_norms = true;
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
  read_attention_bias(reader, model);
  const std::int64_t scale = reader.size("query_pre_attn_scalar", 256);
  model.attention_scale_dim = scale == model.head_dim ? 0 : scale;
  const bool is_null = config.contains("sliding_window") && config.at("sliding_window").is_null();
  const std::int64_t window = is_null ? 0 : reader.size("sliding_window", 4096);
  std::vector<bool> windows;
  for (std::int64_t layer = 0; layer < model.num_layers; ++layer)
    windows.push_back(pattern == 0 || (layer + 1) % pattern != 0);
  read_layer_windows(config, reader, window, windows, model);
}

void read_gemma1(const Json& config, HfReader& reader, model::ModelConfig& model) {
  // The first files have hidden_act = "gelu" and mean its approximation, as transformers does.
  if (model.activation == "gelu") model.activation = "gelu_tanh";
  reader.mark("hidden_activation");  // the key of later files, with null or the same function
  const Json later = config.value("hidden_activation", Json());
  if (!later.is_null() && later != "gelu_pytorch_tanh")
    reader.problem("hidden_activation",
                   formatted(" = {}, must be \"gelu_pytorch_tanh\" or null", later.dump()));
  model.embedding_scale = std::sqrt(static_cast<double>(model.hidden_size));
  read_attention_bias(reader, model);
}

void write_gemma1(const model::ModelConfig& model, Json& json) {
  json["attention_bias"] = model.qkv_bias;
}

void read_gemma2(const Json& config, HfReader& reader, model::ModelConfig& model) {
  read_gemma(config, reader, 2, model);
  const auto softcap = [&](const char* key, double fallback) {
    const auto found = config.find(key);  // null: off
    return found != config.end() && found->is_null() ? 0 : reader.number(config, key, fallback);
  };
  model.attention_softcap = softcap("attn_logit_softcapping", 50.0);
  model.logit_softcap = softcap("final_logit_softcapping", 30.0);
}

void read_gemma3(const Json& config, HfReader& reader, model::ModelConfig& model) {
  model.qk_norm = true;
  read_gemma(config, reader, reader.size("sliding_window_pattern", 6), model);
  reader.mark("rope_local_base_freq");
  if (model.sliding_window > 0) model.local_rope_theta = local_theta(config, reader);
}

void write_gemma(const model::ModelConfig& model, Json& json) {
  json["hidden_activation"] = json.at("hidden_act");
  json.erase("hidden_act");
  json["attention_bias"] = model.qkv_bias;
  json["query_pre_attn_scalar"] =
      model.attention_scale_dim > 0 ? model.attention_scale_dim : model.head_dim;
  put_window(model, json);
  put_layer_types(model, json);
  json["use_bidirectional_attention"] = false;
}

void write_gemma2(const model::ModelConfig& model, Json& json) {
  write_gemma(model, json);
  const auto softcap = [](double value) { return value > 0 ? Json(value) : Json(nullptr); };
  json["attn_logit_softcapping"] = softcap(model.attention_softcap);
  json["final_logit_softcapping"] = softcap(model.logit_softcap);
}

void write_gemma3(const model::ModelConfig& model, Json& json) {
  write_gemma(model, json);
  const double local = model.local_rope_theta > 0 ? model.local_rope_theta : model.rope_theta;
  json["rope_local_base_freq"] = local;  // transformers 4
  json["rope_parameters"] = {
      {"full_attention", json.at("rope_parameters")},
      {"sliding_attention", {{"rope_type", "default"}, {"rope_theta", local}}}};
  json["final_logit_softcapping"] = nullptr;
  json["attn_logit_softcapping"] = nullptr;
}

std::vector<RenamedPart> norm_names() {
  return {{".post_attention_layernorm.", ".pre_feedforward_layernorm."},
          {".attention_output_norm.", ".post_attention_layernorm."},
          {".mlp_output_norm.", ".post_feedforward_layernorm."}};
}

}  // namespace

const Family& gemma_family() {
  static const Family family{.model_type = "gemma",
                             .architecture = "GemmaForCausalLM",
                             .defaults = {.num_kv_heads = 16,
                                          .head_dim = 256,
                                          .max_positions = 8192,
                                          .tie_embeddings = true,
                                          .activation = "gelu_pytorch_tanh"},
                             .keys = {"attention_bias"},
                             .norm_offset = 1,
                             .read = read_gemma1,
                             .write = write_gemma1};
  return family;
}

const Family& gemma2_family() {
  static const Family family{.model_type = "gemma2",
                             .architecture = "Gemma2ForCausalLM",
                             .defaults = {.num_kv_heads = 4,
                                          .head_dim = 256,
                                          .max_positions = 8192,
                                          .tie_embeddings = true,
                                          .activation = "gelu_pytorch_tanh"},
                             .activation_key = "hidden_activation",
                             .keys = {"attention_bias", "sliding_window", "layer_types",
                                      "attn_logit_softcapping", "final_logit_softcapping"},
                             .renamed = norm_names(),
                             .norm_offset = 1,
                             .read = read_gemma2,
                             .write = write_gemma2};
  return family;
}

const Family& gemma3_family() {
  static const Family family{.model_type = "gemma3_text",
                             .architecture = "Gemma3ForCausalLM",
                             .defaults = {.num_kv_heads = 4,
                                          .head_dim = 256,
                                          .max_positions = 131072,
                                          .rope_theta = 1e6,
                                          .tie_embeddings = true,
                                          .activation = "gelu_pytorch_tanh"},
                             .activation_key = "hidden_activation",
                             .keys = {"attention_bias", "sliding_window", "layer_types"},
                             .renamed = norm_names(),
                             .norm_offset = 1,
                             .rope_by_layer_type = true,
                             .read = read_gemma3,
                             .write = write_gemma3};
  return family;
}

}  // namespace trireme::checkpoint
