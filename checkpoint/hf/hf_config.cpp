#include "checkpoint/hf/hf_config.hpp"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "checkpoint/hf/hf_reader.hpp"
#include "checkpoint/hf/hf_rope.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme::checkpoint {
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
  for (const model::ActivationName& one : model::activation_names()) {
    if (one.name == name) return one.hf_name;
  }
  fail(ErrorKind::internal, "no Hugging Face name for activation {}", name);
}

enum class HfName { qwen3, qwen3_moe, llama, mistral };

/// An architecture, and the values that it assumes for keys that config.json does not set.
struct Family {
  HfName name;
  const char* model_type;
  const char* architecture;
  bool qk_norm;
  bool experts;
  std::int64_t num_kv_heads;  // 0: as many as query heads
  std::int64_t head_dim;      // 0: width / heads
  std::int64_t max_positions;
  std::int64_t window;  // default window (Mistral)
};

/// The default family of a shape is the first row that fits the shape.
constexpr std::array<Family, 4> kFamilies{
    {{HfName::qwen3, "qwen3", "Qwen3ForCausalLM", true, false, 32, 128, 32768, 0},
     {HfName::qwen3_moe, "qwen3_moe", "Qwen3MoeForCausalLM", true, true, 4, 0, 32768, 0},
     {HfName::llama, "llama", "LlamaForCausalLM", false, false, 0, 0, 2048, 0},
     {HfName::mistral, "mistral", "MistralForCausalLM", false, false, 8, 0, 131072, 4096}}};

const Family& family_of(const model::ModelConfig& config, std::string_view wanted) {
  const Family* first = nullptr;
  for (const Family& family : kFamilies) {
    if (family.qk_norm != config.qk_norm || family.experts != config.moe.on()) continue;
    if (family.model_type == wanted) return family;
    if (first == nullptr) first = &family;
  }
  TRIREME_ASSERT(first != nullptr);
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

/// Accepts an attention window only if it covers all positions, because it then has no effect.
void check_window(const Json& config, const Family& family, HfReader& reader) {
  if (family.qk_norm) return;  // Qwen sets a window even if use_sliding_window is false
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

/// Returns Trireme's name of the activation. Without the key, returns silu, the default of all
/// architectures.
std::string read_activation(const Json& config, HfReader& reader) {
  const auto found = config.find("hidden_act");
  if (found == config.end()) return model::ModelConfig{}.activation;
  for (const model::ActivationName& one : model::activation_names()) {
    if (*found == one.hf_name) return one.name;
  }
  const std::string known =
      joined(model::activation_names(), ", ",
             [](const model::ActivationName& one) { return formatted("\"{}\"", one.hf_name); });
  reader.problem("hidden_act",
                 formatted(" = {} is not supported, must be one of {}", found->dump(), known));
  return "";
}

/// Returns the factor between the two definitions of router_aux_loss_coef: transformers computes
/// one loss, the mean over all layers with experts; in Trireme, each of these layers has its own
/// loss.
double layers_with_aux_loss(const model::ModelConfig& model) {
  return static_cast<double>(
      std::max<std::int64_t>(1, model.moe.layers_with_experts(model.num_layers)));
}

void put_experts(const model::ModelConfig& model, Json& json) {
  const model::MoeConfig& moe = model.moe;
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

/// Reads the settings of experts in every layer except the first ones.
void read_experts(const Json& config, HfReader& reader, model::ModelConfig& model) {
  model::MoeConfig& moe = model.moe;
  // transformers 5 writes num_local_experts, older versions num_experts.
  moe.num_experts =
      reader.size(config.contains("num_local_experts") ? "num_local_experts" : "num_experts", 128);
  moe.num_experts_per_tok = reader.size("num_experts_per_tok", 8);
  moe.moe_intermediate_size = reader.size("moe_intermediate_size", 768);
  moe.norm_topk_prob = reader.flag("norm_topk_prob", false);
  moe.router_aux_loss = "micro_batch";
  if (const auto step = reader.size("decoder_sparse_step", 1); step != 1)
    reader.problem("decoder_sparse_step",
                   formatted(" = {}, must be 1: experts in every layer", step));
  Json dense = config.value("mlp_only_layers", Json());
  if (dense.is_null()) dense = Json::array();
  if (dense.is_array()) std::sort(dense.begin(), dense.end());
  for (const Json& layer : dense.is_array() ? dense : Json::array({-1})) {
    if (layer != moe.first_dense_layers)
      return reader.problem("mlp_only_layers",
                            formatted(" = {}, must be a list of the first layers", dense.dump()));
    ++moe.first_dense_layers;
  }
  const double coef = reader.number(config, "router_aux_loss_coef", 0.001);
  if (coef < 0)
    reader.problem("router_aux_loss_coef",
                   formatted(" = {}, must be 0 or more", number_text(coef)));
  moe.router_aux_loss_coef = coef / layers_with_aux_loss(model);
}

}  // namespace

std::string hf_family_problem(const model::ModelConfig& config) {
  if (!config.moe.on()) return "";
  std::vector<std::string> reasons;
  if (!config.qk_norm) reasons.emplace_back("qk_norm = false");
  if (config.moe.num_shared_experts > 0)
    reasons.push_back(formatted("num_shared_experts = {}", config.moe.num_shared_experts));
  if (config.moe.router_score != "softmax")
    reasons.push_back(formatted("router_score = {}", config.moe.router_score));
  if (config.moe.has_bias()) reasons.emplace_back("router_balance = bias");
  return joined(reasons, ", ");
}

std::string hf_family(const model::ModelConfig& config, std::string_view wanted) {
  return family_of(config, wanted).model_type;
}

std::string hf_config_text(const model::ModelConfig& config, DType dtype,
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
  if (family.qk_norm) {
    json["use_sliding_window"] = false;
    json["max_window_layers"] = config.num_layers;
  }
  if (family.name != HfName::llama) json["sliding_window"] = nullptr;
  if (family.name == HfName::llama) {
    json["mlp_bias"] = false;
    json["pretraining_tp"] = 1;
  }
  if (family.experts) put_experts(config, json);
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

model::ModelConfig model_from_hf(const Json& config, std::string_view where) {
  if (!config.is_object()) fail(ErrorKind::data, "{}: not a JSON object", where);
  HfReader reader(config, where);
  const Family& family = family_named(config, where);
  for (const char* key : {"attention_bias", "mlp_bias", "use_sliding_window", "n_routed_experts",
                          "quantization_config"}) {
    reader.must_be_off(key);
  }
  for (const char* key : {"num_experts", "num_local_experts"})
    if (!family.experts) reader.must_be_off(key);
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
  model::ModelConfig model;
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
  if (family.experts) read_experts(config, reader, model);
  read_hf_rope(config, model, reader);
  reader.raise();
  try {
    model::resolve(model, 0);
  } catch (const Error& error) {
    fail(ErrorKind::data, "{} cannot be imported: {}", where, error.what());
  }
  model.preset = model::matching_preset(model);
  return model;
}

}  // namespace trireme::checkpoint
