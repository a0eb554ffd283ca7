#include "checkpoint/hf/hf_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "checkpoint/format/model_values.hpp"
#include "checkpoint/hf/hf_family.hpp"
#include "checkpoint/hf/hf_reader.hpp"
#include "checkpoint/hf/hf_rope.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "model/rope_scaling.hpp"

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

/// Other names in transformers of the same function, and Trireme's name.
constexpr std::array<std::pair<std::string_view, std::string_view>, 3> kSameActivations{
    {{"gelu_new", "gelu_tanh"}, {"gelu_fast", "gelu_tanh"}, {"swish", "silu"}}};

/// Returns the name in config.json. If the default of the family is the same function, it is used.
std::string hf_activation(const std::string& name, const Family& family) {
  for (const auto& [hf_name, ours] : kSameActivations)
    if (ours == name && hf_name == family.defaults.activation) return std::string(hf_name);
  for (const model::ActivationName& one : model::activation_names()) {
    if (one.name == name) return one.hf_name;
  }
  fail(ErrorKind::internal, "no Hugging Face name for activation {}", name);
}

constexpr std::int64_t kMostLayers = 10'000;

/// Keys of any architecture that change the computation. A family supports those that it lists.
constexpr std::array<const char*, 37> kComputationKeys{{"attention_bias",
                                                        "mlp_bias",
                                                        "use_bias",
                                                        "qkv_bias",
                                                        "use_qkv_bias",
                                                        "lm_head_bias",
                                                        "use_sliding_window",
                                                        "sliding_window",
                                                        "layer_types",
                                                        "no_rope_layers",
                                                        "num_experts",
                                                        "num_local_experts",
                                                        "n_routed_experts",
                                                        "num_shared_experts",
                                                        "shared_expert_intermediate_size",
                                                        "router_jitter_noise",
                                                        "quantization_config",
                                                        "attn_logit_softcapping",
                                                        "final_logit_softcapping",
                                                        "clip_qkv",
                                                        "use_bidirectional_attention",
                                                        "use_qk_norm",
                                                        "qk_layernorm",
                                                        "alibi",
                                                        "parallel_attn",
                                                        "use_parallel_residual",
                                                        "embd_pdrop",
                                                        "resid_pdrop",
                                                        "attn_pdrop",
                                                        "hidden_dropout",
                                                        "scale_attn_by_inverse_layer_idx",
                                                        "attention_multiplier",
                                                        "embedding_multiplier",
                                                        "residual_multiplier",
                                                        "logits_scaling",
                                                        "logit_scale",
                                                        "use_mrope"}};

/// Keys that do not change the logits of any architecture.
constexpr std::array<const char*, 39> kKeysWithoutEffect{{"_attn_implementation",
                                                          "_attn_implementation_autoset",
                                                          "_name_or_path",
                                                          "_sliding_window_pattern",
                                                          "add_cross_attention",
                                                          "architectures",
                                                          "attn_implementation",
                                                          "auto_map",
                                                          "bos_token_id",
                                                          "cache_implementation",
                                                          "chunk_size_feed_forward",
                                                          "dtype",
                                                          "eos_token_id",
                                                          "finetuning_task",
                                                          "id2label",
                                                          "initializer_range",
                                                          "is_decoder",
                                                          "is_encoder_decoder",
                                                          "label2id",
                                                          "model_type",
                                                          "original_max_position_embeddings",
                                                          "output_attentions",
                                                          "output_hidden_states",
                                                          "output_router_logits",
                                                          "pad_token_id",
                                                          "prefix",
                                                          "pretraining_tp",
                                                          "problem_type",
                                                          "pruned_heads",
                                                          "return_dict",
                                                          "sep_token_id",
                                                          "task_specific_params",
                                                          "tie_encoder_decoder",
                                                          "tokenizer_class",
                                                          "torch_dtype",
                                                          "torchscript",
                                                          "transformers_version",
                                                          "use_bfloat16",
                                                          "use_cache"}};

const Family& family_named(const Json& config, std::string_view where) {
  const auto type = config.find("model_type");
  if (type != config.end() && type->is_string()) {
    if (const Family* family = find_family(type->get<std::string>())) return *family;
  }
  if (type == config.end())
    fail(ErrorKind::data, "{} has no model_type; supported: {}", where, hf_family_names());
  fail(ErrorKind::data, "{}: model_type {} cannot be imported; supported: {}", where, type->dump(),
       hf_family_names());
}

/// Returns Trireme's name of the activation.
std::string read_activation(const Json& config, const Family& family, HfReader& reader) {
  const std::string key(family.activation_key);
  reader.mark(key);
  const Json found = config.value(key, Json(family.defaults.activation));
  for (const model::ActivationName& one : model::activation_names()) {
    if (found == one.hf_name) return one.name;
  }
  for (const auto& [hf_name, ours] : kSameActivations)
    if (found == hf_name) return std::string(ours);
  std::string known = joined(model::activation_names(), ", ", [](const model::ActivationName& one) {
    return formatted("\"{}\"", one.hf_name);
  });
  for (const auto& same : kSameActivations) known += formatted(", \"{}\"", same.first);
  reader.problem(key, formatted(" = {} is not supported, must be one of {}", found.dump(), known));
  return "";
}

/// Returns true for layer_types that name the usual attention for every layer.
bool has_full_attention(const Json& config, std::string_view key) {
  const Json types = key == "layer_types" ? config.value("layer_types", Json()) : Json();
  return types.is_array() &&
         std::ranges::all_of(types, [](const Json& one) { return one == "full_attention"; });
}

/// Returns config.json of a family without dtype and special tokens.
Json config_of(const model::ModelConfig& config, const Family& family) {
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
  json["hidden_act"] = hf_activation(config.activation, family);
  json["max_position_embeddings"] = config.max_seq_len;
  json["initializer_range"] = 0.02;
  json["rms_norm_eps"] = config.norm_eps;
  json["use_cache"] = true;
  json["tie_word_embeddings"] = config.tie_embeddings;
  json["attention_dropout"] = config.attention_dropout;
  put_hf_rope(config, family, json);
  family.write(config, json);
  for (const auto& [ours, file] : family.renamed_keys) {
    const auto found = json.find(ours);
    if (found == json.end()) continue;
    json[std::string(file)] = *found;
    json.erase(std::string(ours));
  }
  return json;
}

}  // namespace

std::vector<std::string> hf_differences(const model::ModelConfig& config,
                                        const model::ModelConfig& read) {
  model::ModelConfig theirs = read;
  if (!config.moe.on() && !theirs.moe.on()) theirs.moe = config.moe;
  theirs.moe.router_balance = config.moe.router_balance;  // config.json has no key for it
  theirs.moe.router_aux_loss = config.moe.router_aux_loss;
  theirs.moe.router_bias_rate = config.moe.router_bias_rate;
  const double rounded =
      std::abs(theirs.moe.router_aux_loss_coef - config.moe.router_aux_loss_coef);
  if (rounded <= 1e-12 * config.moe.router_aux_loss_coef)
    theirs.moe.router_aux_loss_coef = config.moe.router_aux_loss_coef;
  const model::RopeScaling scaling = model::parse_rope_scaling(config.rope_scaling);
  // An import of longrope always has the original length.
  if (scaling.kind == model::RopeScaling::Kind::longrope) theirs.max_seq_len = config.max_seq_len;
  if (config.learned_positions()) theirs.rope_theta = config.rope_theta;  // has no effect
  theirs.preset = config.preset;
  theirs.depth = config.depth;  // the sizes that it gives are compared
  theirs.dropout = config.dropout;
  theirs.init = config.init;  // initial values do not change the computation
  theirs.zero_projections = config.zero_projections;
  model::ModelConfig ours = config;
  ours.rope_scaling = model::rope_scaling_text(scaling);
  std::map<std::string, std::string> wanted;
  std::map<std::string, std::string> found;
  put_model_values(ours, wanted);
  put_model_values(theirs, found);
  std::vector<std::string> differences;
  for (const auto& [key, value] : wanted) {
    if (found[key] != value) differences.push_back(formatted("{} = {}", key, value));
  }
  return differences;
}

std::optional<std::vector<std::string>> family_differences(const model::ModelConfig& config,
                                                           const Family& family) {
  try {
    auto differences = hf_differences(config, model_from_hf(config_of(config, family), ""));
    if (config.moe.on() && config.moe.has_bias())
      differences.emplace_back("model.router_balance = bias");
    return differences;
  } catch (const Error&) {
    return std::nullopt;
  }
}

const Family* fitting_family(const model::ModelConfig& config, std::string_view wanted) {
  const auto fits = [&](const Family& family) {
    const auto differences = family_differences(config, family);
    return differences && differences->empty();
  };
  const Family* first = find_family(wanted);
  if (first != nullptr && fits(*first)) return first;
  for (const Family* family : hf_families())
    if (fits(*family)) return family;
  return nullptr;
}

const Family& hf_family(const model::ModelConfig& config, std::string_view wanted) {
  const Family* family = fitting_family(config, wanted);
  if (family == nullptr) fail(ErrorKind::internal, "no family fits: {}", hf_family_problem(config));
  return *family;
}

std::string hf_config_text(const model::ModelConfig& config, DType dtype,
                           const SpecialTokenIds& special_ids, std::string_view wanted_family) {
  Json json = config_of(config, hf_family(config, wanted_family));
  json["torch_dtype"] = hf_dtype(dtype);
  json["dtype"] = hf_dtype(dtype);
  for (const char* role : {"bos", "eos", "pad"}) {
    const auto found = special_ids.find(role);
    json[formatted("{}_token_id", role)] =
        found == special_ids.end() ? Json(nullptr) : id_json(found->second);
  }
  return json.dump(2) + "\n";
}

namespace {

model::ModelConfig read_model(const Json& config, HfReader& reader, std::string_view where) {
  const Family& family = family_named(config, where);
  const Family::Defaults& defaults = family.defaults;
  for (const char* key : kComputationKeys) {
    reader.mark(key);
    const bool is_read = std::ranges::find(family.keys, key) != family.keys.end();
    if (!is_read && !has_full_attention(config, key)) reader.must_be_off(key);
  }
  const auto size = [&](const char* ours, std::optional<std::int64_t> fallback = std::nullopt) {
    return reader.size(family.key(ours).c_str(), fallback);
  };
  model::ModelConfig model;
  model.hidden_size = size("hidden_size");
  model.num_layers = size("num_hidden_layers");
  model.num_heads = size("num_attention_heads");
  const bool has_kv_heads = config.contains("num_key_value_heads");  // null: as many as queries
  model.num_kv_heads = reader.size("num_key_value_heads", has_kv_heads || defaults.num_kv_heads == 0
                                                              ? model.num_heads
                                                              : defaults.num_kv_heads);
  const std::int64_t derived = model.num_heads > 0 ? model.hidden_size / model.num_heads : 0;
  model.head_dim = reader.size("head_dim", defaults.head_dim == 0 ? derived : defaults.head_dim);
  model.intermediate_size =
      defaults.width_factor > 0
          ? size("intermediate_size", defaults.width_factor * model.hidden_size)
          : size("intermediate_size");
  model.vocab_size = reader.size("vocab_size");
  model.max_seq_len = size("max_position_embeddings", defaults.max_positions);
  model.tie_embeddings = reader.flag("tie_word_embeddings", defaults.tie_embeddings);
  model.qk_norm = false;
  if (model.num_layers > kMostLayers) {  // a damaged file must not take memory
    reader.problem(family.key("num_hidden_layers"),
                   formatted(" = {}, must be at most {}", model.num_layers, kMostLayers));
    reader.raise();
  }
  model.activation = read_activation(config, family, reader);
  model.norm_eps = reader.number(config, family.key("rms_norm_eps").c_str(), defaults.norm_eps);
  model.attention_dropout = reader.number(config, family.key("attention_dropout").c_str(), 0.0);
  family.read(config, reader, model);
  read_hf_rope(config, family, model, reader);
  reader.raise();
  try {
    model::resolve(model, 0);
  } catch (const Error& error) {
    fail(ErrorKind::data, "{} cannot be imported: {}", where, error.what());
  }
  model.preset = model::matching_preset(model);
  return model;
}

}  // namespace

model::ModelConfig model_from_hf(const Json& config, std::string_view where) {
  if (!config.is_object()) fail(ErrorKind::data, "{}: not a JSON object", where);
  HfReader reader(config, where);
  return read_model(config, reader, where);
}

std::vector<std::string> hf_unknown_keys(const Json& config, std::string_view where) {
  HfReader reader(config, where);
  for (const char* key : kKeysWithoutEffect) reader.mark(key);
  (void)read_model(config, reader, where);
  return reader.unread();
}

}  // namespace trireme::checkpoint
