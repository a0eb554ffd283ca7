#include "checkpoint/hf/hf_rope.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include "core/number.hpp"
#include "model/rope_scaling.hpp"

namespace trireme::checkpoint {
namespace {

using Kind = model::RopeScaling::Kind;

constexpr std::array<std::string_view, 5> kRopeKeys{"rope_type", "type", "rope_theta", "factor",
                                                    "original_max_position_embeddings"};
constexpr std::array<std::string_view, 6> kYarnKeys{
    "beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim"};
constexpr std::array<std::string_view, 2> kLlama3Keys{"low_freq_factor", "high_freq_factor"};
constexpr std::array<std::string_view, 3> kLongropeKeys{"short_factor", "long_factor",
                                                        "attention_factor"};

template <std::size_t N>
bool holds(const std::array<std::string_view, N>& keys, std::string_view key) {
  return std::find(keys.begin(), keys.end(), key) != keys.end();
}

/// Returns the type of the rope scaling; "default" if the object has neither key.
std::string rope_type_of(const Json& object) {
  for (const char* key : {"rope_type", "type"}) {
    const auto found = object.find(key);
    if (found != object.end() && !found->is_null())
      return found->is_string() ? found->get<std::string>() : found->dump();
  }
  return "default";
}

/// Reads the share of each head that is rotated.
void read_partial(const Json& object, const std::string& name, const Family& family,
                  model::ModelConfig& model, HfReader& reader, double fallback = 1) {
  if (!object.contains(name) && fallback == 1) return;
  const double share = reader.number(object, name.c_str(), fallback);
  const auto rotated = static_cast<std::int64_t>(static_cast<double>(model.head_dim) * share);
  if (share == 1.0) {
    model.rotary_dim = 0;
  } else if (!family.partial_rotary || !(share < 1) || rotated < 2) {
    reader.problem(name, formatted(" = {} is not supported", number_text(share)));
  } else {
    model.rotary_dim = rotated;
  }
}

bool is_known_key(std::string_view key, Kind kind) {
  if (holds(kRopeKeys, key) || key == "partial_rotary_factor") return true;
  if (kind == Kind::yarn) return holds(kYarnKeys, key);
  if (kind == Kind::llama3) return holds(kLlama3Keys, key);
  return kind == Kind::longrope && holds(kLongropeKeys, key);
}

void check_known_keys(const Json& object, const char* name, Kind kind, HfReader& reader) {
  for (const auto& [key, value] : object.items()) {
    if (!is_known_key(key, kind) && !value.is_null())
      reader.problem(name, formatted(".{} = {} is not supported", key, value.dump()));
  }
}

/// Returns the numbers of a list.
std::vector<double> read_numbers(const Json& object, const char* name, const char* key,
                                 HfReader& reader) {
  const Json list = object.value(key, Json());
  if (list.is_array() && std::ranges::all_of(list, [](const Json& one) { return one.is_number(); }))
    return list.get<std::vector<double>>();
  reader.problem(name, formatted(".{} = {}, must be a list of numbers", key, list.dump()));
  return {};
}

double attention_factor_of(const Json& object, double factor, HfReader& reader) {
  const double given = reader.number(object, "attention_factor", 0.0);
  if (given != 0) return given;
  const double mscale = reader.number(object, "mscale", 0.0);
  const double all_dim = reader.number(object, "mscale_all_dim", 0.0);
  if (mscale == 0 || all_dim == 0) return model::yarn_attention_factor(factor);
  return model::yarn_attention_factor(factor, mscale) /
         model::yarn_attention_factor(factor, all_dim);
}

/// Returns the length of texts in pretraining. A key of config.json itself goes first.
std::int64_t original_length(const Json& config, const Json& object, const Family& family,
                             std::int64_t max_positions, HfReader& reader) {
  constexpr const char* kKey = "original_max_position_embeddings";
  const std::int64_t fallback =
      family.defaults.original_max > 0 ? family.defaults.original_max : max_positions;
  if (config.contains(kKey)) return reader.size(kKey, fallback);
  if (family.defaults.original_max > 0) return fallback;
  return static_cast<std::int64_t>(reader.number(object, kKey, static_cast<double>(max_positions)));
}

/// Returns the text of model.rope_scaling; "" for none. For longrope, sets max_seq_len.
std::string read_scaling(const Json& config, const Json& object, const char* name,
                         const Family& family, std::int64_t max_positions,
                         model::ModelConfig& model, HfReader& reader) {
  const std::string type = rope_type_of(object);
  const std::optional<Kind> kind = model::find_rope_kind(type);
  if (!kind) {
    reader.problem(name, formatted(".rope_type = \"{}\" is not supported, must be one of "
                                   "\"default\", \"yarn\", \"llama3\", \"linear\", \"dynamic\", "
                                   "\"longrope\"",
                                   type));
    return "";
  }
  if (*kind == Kind::none) return "";
  model::RopeScaling scaling;
  scaling.kind = *kind;
  check_known_keys(object, name, scaling.kind, reader);
  const auto need = [&](const char* key) {
    if (!object.contains(key)) reader.problem(name, formatted(".{} is missing", key));
  };
  if (scaling.kind == Kind::linear || scaling.kind == Kind::dynamic) {
    need("factor");
    scaling.factor = reader.number(object, "factor", 1.0);
    scaling.original_max = max_positions;
    return model::rope_scaling_text(scaling);
  }
  scaling.original_max = original_length(config, object, family, max_positions, reader);
  const auto original = static_cast<double>(scaling.original_max);
  scaling.factor = reader.number(object, "factor",
                                 original > 0 ? static_cast<double>(max_positions) / original : 0);
  // transformers treats 0 as the default.
  const auto or_default = [&](const char* key, double fallback) {
    const double value = reader.number(object, key, fallback);
    return value == 0 ? fallback : value;
  };
  if (scaling.kind == Kind::yarn) {
    scaling.beta_fast = or_default("beta_fast", scaling.beta_fast);
    scaling.beta_slow = or_default("beta_slow", scaling.beta_slow);
    const auto truncate = object.find("truncate");
    scaling.truncate = truncate == object.end() || *truncate != false;
    scaling.attention_factor = attention_factor_of(object, scaling.factor, reader);
  } else if (scaling.kind == Kind::llama3) {
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) need(key);
    scaling.low_freq_factor = reader.number(object, "low_freq_factor", scaling.low_freq_factor);
    scaling.high_freq_factor = reader.number(object, "high_freq_factor", scaling.high_freq_factor);
  } else {
    scaling.short_factor = read_numbers(object, name, "short_factor", reader);
    scaling.long_factor = read_numbers(object, name, "long_factor", reader);
    scaling.attention_factor =
        reader.number(object, "attention_factor",
                      model::longrope_attention_factor(scaling.factor, scaling.original_max));
    model.max_seq_len = std::min(max_positions, scaling.original_max);
  }
  return model::rope_scaling_text(scaling);
}

/// Returns the settings of the layers without a window, if they differ from layer to layer.
Json of_full_attention(const Json& object, const Family& family) {
  return family.rope_by_layer_type ? object.value("full_attention", object) : object;
}

}  // namespace

void read_hf_rope(const Json& config, const Family& family, model::ModelConfig& model,
                  HfReader& reader) {
  const std::int64_t max_positions = model.max_seq_len;
  constexpr const char* kShare = "partial_rotary_factor";
  model.rope_theta =
      reader.number(config, family.key("rope_theta").c_str(), family.defaults.rope_theta);
  read_partial(config, family.key(kShare), family, model, reader, family.defaults.rotary_share);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    reader.mark(key);
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) continue;
    if (!found->is_object()) {
      reader.problem(key, " must be an object");
      continue;
    }
    const Json object = of_full_attention(*found, family);
    if (std::any_of(object.begin(), object.end(), [](const Json& one) { return one.is_object(); }))
      reader.problem(key, " differs from layer to layer, which is not supported");
    model.rope_theta = reader.number(object, "rope_theta", model.rope_theta);
    read_partial(object, kShare, family, model, reader);
    const std::string scaling =
        read_scaling(config, object, key, family, max_positions, model, reader);
    if (!model.rope_scaling.empty() && !scaling.empty() && scaling != model.rope_scaling)
      reader.problem(key, " has another scaling than rope_parameters");
    if (!scaling.empty()) model.rope_scaling = scaling;
  }
}

void put_hf_rope(const model::ModelConfig& model, const Family& family, Json& config) {
  const model::RopeScaling scaling = model::parse_rope_scaling(model.rope_scaling);
  Json json;
  json["rope_type"] = model::rope_kind_name(scaling.kind);
  if (scaling.kind != Kind::none) json["factor"] = scaling.factor;
  if (scaling.original_max > 0) json["original_max_position_embeddings"] = scaling.original_max;
  if (scaling.kind == Kind::yarn) {
    json["beta_fast"] = scaling.beta_fast;
    json["beta_slow"] = scaling.beta_slow;
    json["attention_factor"] = scaling.attention_factor;
    if (!scaling.truncate) json["truncate"] = false;
  } else if (scaling.kind == Kind::llama3) {
    json["low_freq_factor"] = scaling.low_freq_factor;
    json["high_freq_factor"] = scaling.high_freq_factor;
  } else if (scaling.kind == Kind::longrope) {
    json["attention_factor"] = scaling.attention_factor;
    json["short_factor"] = scaling.short_factor;
    json["long_factor"] = scaling.long_factor;
    config["original_max_position_embeddings"] = scaling.original_max;
    config["max_position_embeddings"] =
        std::llround(scaling.factor * static_cast<double>(scaling.original_max));
  }
  config["rope_theta"] = model.rope_theta;  // transformers 4
  config["rope_scaling"] = scaling.kind == Kind::none ? Json(nullptr) : json;
  json["rope_theta"] = model.rope_theta;  // transformers 5
  if (family.partial_rotary) {
    const double share =
        static_cast<double>(model.rotated_dim()) / static_cast<double>(model.head_dim);
    config["partial_rotary_factor"] = share;
    json["partial_rotary_factor"] = share;
  }
  config["rope_parameters"] = json;
}

}  // namespace trireme::checkpoint
