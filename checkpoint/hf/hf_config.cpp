#include "checkpoint/hf/hf_config.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "core/error.hpp"
#include "core/join.hpp"

namespace trireme {
namespace {

const char* hf_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "float32";
    case DType::bf16:
      return "bfloat16";
    case DType::f16:
      return "float16";
    default:
      fail(ErrorKind::internal, "no Hugging Face name for dtype {}", dtype_name(dtype));
  }
}

/// Absent, null, false, 0 or an empty list: the feature is off.
bool is_off(const Json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end() || found->is_null()) return true;
  if (found->is_boolean()) return !found->get<bool>();
  if (found->is_number()) return found->get<double>() == 0;
  return (found->is_array() || found->is_object()) && found->empty();
}

/// Reads what is there and collects what cannot be read, to name all of it at once.
class HfReader {
 public:
  HfReader(const Json& config, std::string_view where) : config_(config), where_(where) {}

  std::int64_t size(const char* key, std::optional<std::int64_t> fallback = std::nullopt) {
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) {
      if (!fallback) problem(key, " is missing");
      return fallback.value_or(0);
    }
    if (found->is_number_integer() && found->get<std::int64_t>() > 0)
      return found->get<std::int64_t>();
    problem(key, formatted(" = {}, must be a positive integer", found->dump()));
    return 0;
  }

  double number(const Json& object, const char* key, double fallback) {
    const auto found = object.find(key);
    if (found == object.end() || found->is_null()) return fallback;
    if (found->is_number()) return found->get<double>();
    problem(key, formatted(" = {}, must be a number", found->dump()));
    return fallback;
  }

  bool flag(const char* key, bool fallback) {
    const auto found = config_.find(key);
    if (found == config_.end() || found->is_null()) return fallback;
    if (found->is_boolean()) return found->get<bool>();
    problem(key, formatted(" = {}, must be true or false", found->dump()));
    return fallback;
  }

  void must_be_off(const char* key) {
    if (!is_off(config_, key))
      problem(key, formatted(" = {} is not supported", config_.at(key).dump().substr(0, 100)));
  }

  void problem(std::string_view key, const std::string& text) {
    problems_ += formatted("\n  {}{}", key, text);
  }

  void raise() const {
    if (!problems_.empty()) fail(ErrorKind::data, "{} cannot be imported:{}", where_, problems_);
  }

 private:
  const Json& config_;
  std::string where_;
  std::string problems_;
};

/// Transformers 4 keeps rope_theta at the top, 5 inside rope_parameters; either may be scaled.
double read_rope_theta(const Json& config, HfReader& reader) {
  double theta = reader.number(config, "rope_theta", 10000.0);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) continue;
    if (!found->is_object()) {
      reader.problem(key, " must be an object");
      continue;
    }
    theta = reader.number(*found, "rope_theta", theta);
    for (const char* type_key : {"rope_type", "type"}) {
      const auto type = found->find(type_key);
      if (type != found->end() && *type != "default")
        reader.problem(key, formatted(".{} = {} is not supported", type_key, type->dump()));
    }
  }
  return theta;
}

std::string hf_activation(const std::string& name) {
  for (const ActivationName& one : activation_names()) {
    if (one.name == name) return one.hf_name;
  }
  fail(ErrorKind::internal, "no Hugging Face name for activation {}", name);
}

/// Absent: silu, the default of both architectures.
std::string read_activation(const Json& config, HfReader& reader) {
  const auto found = config.find("hidden_act");
  if (found == config.end()) return ModelConfig{}.activation;
  for (const ActivationName& one : activation_names()) {
    if (*found == one.hf_name) return one.name;
  }
  const std::string known = joined(activation_names(), ", ", [](const ActivationName& one) {
    return formatted("\"{}\"", one.hf_name);
  });
  reader.problem("hidden_act",
                 formatted(" = {} is not supported, must be one of {}", found->dump(), known));
  return "";
}

}  // namespace

std::vector<HfTensor> hf_tensors(const ModelConfig& config) {
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t queries = config.num_heads * config.head_dim;
  const std::int64_t keys = config.num_kv_heads * config.head_dim;
  std::vector<HfTensor> tensors{{"model.embed_tokens.weight", {config.vocab_size, hidden}}};
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    const std::string prefix = formatted("model.layers.{}.", layer);
    const auto add = [&](const char* name, std::vector<std::int64_t> shape) {
      tensors.push_back({prefix + name + ".weight", std::move(shape)});
    };
    add("input_layernorm", {hidden});
    add("self_attn.q_proj", {queries, hidden});
    add("self_attn.k_proj", {keys, hidden});
    add("self_attn.v_proj", {keys, hidden});
    add("self_attn.o_proj", {hidden, queries});
    if (config.qk_norm) add("self_attn.q_norm", {config.head_dim});
    if (config.qk_norm) add("self_attn.k_norm", {config.head_dim});
    add("post_attention_layernorm", {hidden});
    add("mlp.gate_proj", {config.intermediate_size, hidden});
    add("mlp.up_proj", {config.intermediate_size, hidden});
    add("mlp.down_proj", {hidden, config.intermediate_size});
  }
  tensors.push_back({"model.norm.weight", {hidden}});
  if (!config.tie_embeddings) tensors.push_back({"lm_head.weight", {config.vocab_size, hidden}});
  return tensors;
}

std::string hf_config_text(const ModelConfig& config, DType dtype,
                           const SpecialTokenIds& special_ids) {
  Json json;
  json["architectures"] = {config.qk_norm ? "Qwen3ForCausalLM" : "LlamaForCausalLM"};
  json["model_type"] = config.qk_norm ? "qwen3" : "llama";
  json["vocab_size"] = config.vocab_size;
  json["hidden_size"] = config.hidden_size;
  json["intermediate_size"] = config.intermediate_size;
  json["num_hidden_layers"] = config.num_layers;
  json["num_attention_heads"] = config.num_heads;
  json["num_key_value_heads"] = config.num_kv_heads;
  json["head_dim"] = config.head_dim;
  json["hidden_act"] = hf_activation(config.activation);
  json["max_position_embeddings"] = config.max_seq_len;
  json["initializer_range"] = 0.02;
  json["rms_norm_eps"] = config.norm_eps;
  json["use_cache"] = true;
  json["tie_word_embeddings"] = config.tie_embeddings;
  json["attention_bias"] = false;
  json["attention_dropout"] = config.attention_dropout;
  if (config.qk_norm) {
    json["use_sliding_window"] = false;
    json["sliding_window"] = nullptr;
    json["max_window_layers"] = config.num_layers;
  } else {
    json["mlp_bias"] = false;
    json["pretraining_tp"] = 1;
  }
  json["rope_theta"] = config.rope_theta;  // transformers 4
  json["rope_scaling"] = nullptr;
  json["rope_parameters"] = {{"rope_theta", config.rope_theta},
                             {"rope_type", "default"}};  // transformers 5
  json["torch_dtype"] = hf_dtype(dtype);
  json["dtype"] = hf_dtype(dtype);
  for (const char* role : {"bos", "eos", "pad"}) {
    const auto found = special_ids.find(role);
    json[formatted("{}_token_id", role)] =
        found == special_ids.end() ? Json(nullptr) : id_json(found->second);
  }
  return json.dump(2) + "\n";
}

ModelConfig model_from_hf(const Json& config, std::string_view where) {
  if (!config.is_object()) fail(ErrorKind::data, "{}: not a JSON object", where);
  HfReader reader(config, where);
  const std::string type =
      config.contains("model_type") ? config.at("model_type").dump() : "nothing";
  const bool qwen = type == "\"qwen3\"";
  if (!qwen && type != "\"llama\"") {
    fail(ErrorKind::data, "{}: model_type {} cannot be imported; supported: \"qwen3\", \"llama\"",
         where, type);
  }
  for (const char* key :
       {"attention_bias", "mlp_bias", "use_sliding_window", "num_experts", "num_local_experts",
        "n_routed_experts", "quantization_config", "partial_rotary_factor"}) {
    reader.must_be_off(key);
  }
  if (!qwen)
    reader.must_be_off(
        "sliding_window");  // qwen3 writes a width even where use_sliding_window is false
  const auto layers = config.find("layer_types");
  if (layers != config.end() && layers->is_array()) {
    for (const Json& layer : *layers) {
      if (layer != "full_attention") {
        reader.problem("layer_types",
                       formatted(" holds {}, only \"full_attention\" is supported", layer.dump()));
        break;
      }
    }
  }
  ModelConfig model;
  model.hidden_size = reader.size("hidden_size");
  model.num_layers = reader.size("num_hidden_layers");
  model.num_heads = reader.size("num_attention_heads");
  model.num_kv_heads = reader.size("num_key_value_heads", model.num_heads);
  // Qwen3's own default is 128; Llama's follows from the width.
  model.head_dim =
      reader.size("head_dim", qwen                  ? 128
                              : model.num_heads > 0 ? model.hidden_size / model.num_heads
                                                    : 0);
  model.intermediate_size = reader.size("intermediate_size");
  model.vocab_size = reader.size("vocab_size");
  model.max_seq_len = reader.size("max_position_embeddings", qwen ? 32768 : 2048);
  model.tie_embeddings = reader.flag("tie_word_embeddings", false);
  model.qk_norm = qwen;
  model.activation = read_activation(config, reader);
  model.norm_eps = reader.number(config, "rms_norm_eps", 1e-6);
  model.attention_dropout = reader.number(config, "attention_dropout", 0.0);
  model.rope_theta = read_rope_theta(config, reader);
  reader.raise();
  try {
    resolve(model, 0);
  } catch (const Error& error) {
    fail(ErrorKind::data, "{} cannot be imported: {}", where, error.what());
  }
  model.preset = matching_preset(model);
  return model;
}

}  // namespace trireme
