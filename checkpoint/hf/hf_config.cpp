#include "checkpoint/hf/hf_config.hpp"

#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "checkpoint/hf/hf_reader.hpp"
#include "checkpoint/hf/hf_rope.hpp"
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

std::string hf_activation(const std::string& name) {
  for (const ActivationName& one : activation_names()) {
    if (one.name == name) return one.hf_name;
  }
  fail(ErrorKind::internal, "no Hugging Face name for activation {}", name);
}

enum class HfName { qwen3, llama, mistral };

/// What differs between the architectures, and their defaults where config.json says nothing.
struct Family {
  HfName name;
  const char* model_type;
  const char* architecture;
  bool qk_norm;
  std::int64_t num_kv_heads;  // 0: as many as query heads
  std::int64_t head_dim;      // 0: width / heads
  std::int64_t max_positions;
  std::int64_t window;  // of Mistral, where the key is absent
};

/// The first row of a shape is its family where nothing else is said.
constexpr std::array<Family, 3> kFamilies{
    {{HfName::qwen3, "qwen3", "Qwen3ForCausalLM", true, 32, 128, 32768, 0},
     {HfName::llama, "llama", "LlamaForCausalLM", false, 0, 0, 2048, 0},
     {HfName::mistral, "mistral", "MistralForCausalLM", false, 8, 0, 131072, 4096}}};

const Family& family_of(const ModelConfig& config, std::string_view wanted) {
  const Family* first = nullptr;
  for (const Family& family : kFamilies) {
    if (family.qk_norm != config.qk_norm) continue;
    if (family.model_type == wanted) return family;
    if (first == nullptr) first = &family;
  }
  return *first;
}

const Family& family_named(const Json& config, std::string_view where) {
  const auto type = config.find("model_type");
  for (const Family& family : kFamilies) {
    if (type != config.end() && *type == family.model_type) return family;
  }
  fail(ErrorKind::data, "{}: model_type {} cannot be imported; supported: {}", where,
       type == config.end() ? "nothing" : type->dump(),
       joined(kFamilies, ", ", [](const Family& f) { return formatted("\"{}\"", f.model_type); }));
}

/// Attention inside a window is attention to all where no text is longer.
void check_window(const Json& config, const Family& family, HfReader& reader) {
  if (family.name == HfName::qwen3)
    return;  // writes a width even where use_sliding_window is false
  if (family.name == HfName::llama) return reader.must_be_off("sliding_window");
  const bool said = config.contains("sliding_window");
  if (said && config.at("sliding_window").is_null()) return;
  const std::int64_t window = reader.size("sliding_window", family.window);
  const std::int64_t longest = reader.size("max_position_embeddings", family.max_positions);
  if (window >= longest) return;
  reader.problem("sliding_window",
                 formatted(" = {}{} is below max_position_embeddings = {}: attention inside a "
                           "window is not supported; for texts of at most {} tokens set "
                           "max_position_embeddings to {}",
                           window, said ? "" : " (the default)", longest, window, window));
}

/// Absent: silu, the default of all architectures.
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

std::string hf_family(const ModelConfig& config, std::string_view wanted) {
  return family_of(config, wanted).model_type;
}

std::string hf_config_text(const ModelConfig& config, DType dtype,
                           const SpecialTokenIds& special_ids, std::string_view wanted_family) {
  const Family& family = family_of(config, wanted_family);
  Json json;
  json["architectures"] = {family.architecture};
  json["model_type"] = family.model_type;
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
  if (family.name == HfName::qwen3) {
    json["use_sliding_window"] = false;
    json["max_window_layers"] = config.num_layers;
  }
  if (family.name != HfName::llama) json["sliding_window"] = nullptr;
  if (family.name == HfName::llama) {
    json["mlp_bias"] = false;
    json["pretraining_tp"] = 1;
  }
  put_hf_rope(config, json);
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
  const Family& family = family_named(config, where);
  for (const char* key : {"attention_bias", "mlp_bias", "use_sliding_window", "num_experts",
                          "num_local_experts", "n_routed_experts", "quantization_config"}) {
    reader.must_be_off(key);
  }
  check_window(config, family, reader);
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
  const bool has_kv_heads = config.contains("num_key_value_heads");  // null: as many as queries
  model.num_kv_heads =
      reader.size("num_key_value_heads",
                  has_kv_heads || family.num_kv_heads == 0 ? model.num_heads : family.num_kv_heads);
  const std::int64_t derived = model.num_heads > 0 ? model.hidden_size / model.num_heads : 0;
  model.head_dim = reader.size("head_dim", family.head_dim == 0 ? derived : family.head_dim);
  model.intermediate_size = reader.size("intermediate_size");
  model.vocab_size = reader.size("vocab_size");
  model.max_seq_len = reader.size("max_position_embeddings", family.max_positions);
  model.tie_embeddings = reader.flag("tie_word_embeddings", false);
  model.qk_norm = family.qk_norm;
  model.activation = read_activation(config, reader);
  model.norm_eps = reader.number(config, "rms_norm_eps", 1e-6);
  model.attention_dropout = reader.number(config, "attention_dropout", 0.0);
  read_hf_rope(config, model, reader);
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
