#include "checkpoint/hf/hf_rope.hpp"

#include <algorithm>
#include <array>

#include "model/rope_scaling.hpp"

namespace trireme::checkpoint {
namespace {

using Kind = model::RopeScaling::Kind;

constexpr std::array<std::string_view, 5> kRopeKeys{"rope_type", "type", "rope_theta", "factor",
                                                    "original_max_position_embeddings"};
constexpr std::array<std::string_view, 6> kYarnKeys{
    "beta_fast", "beta_slow", "truncate", "attention_factor", "mscale", "mscale_all_dim"};
constexpr std::array<std::string_view, 2> kLlama3Keys{"low_freq_factor", "high_freq_factor"};

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

/// Reports a problem if only a part of each head is rotated, which is not supported.
void check_whole(const Json& object, HfReader& reader) {
  if (reader.number(object, "partial_rotary_factor", 1.0) != 1.0)
    reader.problem("partial_rotary_factor",
                   formatted(" = {} is not supported", object.at("partial_rotary_factor").dump()));
}

void check_known_keys(const Json& object, const char* name, Kind kind, HfReader& reader) {
  for (const auto& [key, value] : object.items()) {
    const bool known = holds(kRopeKeys, key) || key == "partial_rotary_factor" ||
                       (kind == Kind::yarn ? holds(kYarnKeys, key) : holds(kLlama3Keys, key));
    if (!known && !value.is_null())
      reader.problem(name, formatted(".{} = {} is not supported", key, value.dump()));
  }
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

/// Returns the text of model.rope_scaling; "" for none.
std::string read_scaling(const Json& object, const char* name, std::int64_t max_positions,
                         HfReader& reader) {
  const std::string type = rope_type_of(object);
  if (type == "default") return "";
  if (type != "yarn" && type != "llama3") {
    reader.problem(name, formatted(".rope_type = \"{}\" is not supported, must be one of "
                                   "\"default\", \"yarn\", \"llama3\"",
                                   type));
    return "";
  }
  model::RopeScaling scaling;
  scaling.kind = type == "yarn" ? Kind::yarn : Kind::llama3;
  check_known_keys(object, name, scaling.kind, reader);
  const double original =
      reader.number(object, "original_max_position_embeddings", static_cast<double>(max_positions));
  scaling.original_max = static_cast<std::int64_t>(original);
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
  } else {
    for (const char* key : {"factor", "low_freq_factor", "high_freq_factor"}) {
      if (!object.contains(key)) reader.problem(name, formatted(".{} is missing", key));
    }
    scaling.low_freq_factor = reader.number(object, "low_freq_factor", scaling.low_freq_factor);
    scaling.high_freq_factor = reader.number(object, "high_freq_factor", scaling.high_freq_factor);
  }
  return model::rope_scaling_text(scaling);
}

}  // namespace

void read_hf_rope(const Json& config, model::ModelConfig& model, HfReader& reader) {
  model.rope_theta = reader.number(config, "rope_theta", 10000.0);
  check_whole(config, reader);
  for (const char* key : {"rope_parameters", "rope_scaling"}) {
    const auto found = config.find(key);
    if (found == config.end() || found->is_null()) continue;
    if (!found->is_object()) {
      reader.problem(key, " must be an object");
      continue;
    }
    if (std::any_of(found->begin(), found->end(), [](const Json& one) { return one.is_object(); }))
      reader.problem(key, " differs from layer to layer, which is not supported");
    model.rope_theta = reader.number(*found, "rope_theta", model.rope_theta);
    check_whole(*found, reader);
    const std::string scaling = read_scaling(*found, key, model.max_seq_len, reader);
    if (!model.rope_scaling.empty() && !scaling.empty() && scaling != model.rope_scaling)
      reader.problem(key, " has another scaling than rope_parameters");
    if (!scaling.empty()) model.rope_scaling = scaling;
  }
}

void put_hf_rope(const model::ModelConfig& model, Json& config) {
  const model::RopeScaling scaling = model::parse_rope_scaling(model.rope_scaling);
  Json json;
  if (scaling.kind == Kind::none) {
    json["rope_type"] = "default";
  } else {
    json["rope_type"] = scaling.kind == Kind::yarn ? "yarn" : "llama3";
    json["factor"] = scaling.factor;
    json["original_max_position_embeddings"] = scaling.original_max;
  }
  if (scaling.kind == Kind::yarn) {
    json["beta_fast"] = scaling.beta_fast;
    json["beta_slow"] = scaling.beta_slow;
    json["attention_factor"] = scaling.attention_factor;
    if (!scaling.truncate) json["truncate"] = false;
  } else if (scaling.kind == Kind::llama3) {
    json["low_freq_factor"] = scaling.low_freq_factor;
    json["high_freq_factor"] = scaling.high_freq_factor;
  }
  config["rope_theta"] = model.rope_theta;  // transformers 4
  config["rope_scaling"] = scaling.kind == Kind::none ? Json(nullptr) : json;
  json["rope_theta"] = model.rope_theta;  // transformers 5
  config["rope_parameters"] = json;
}

}  // namespace trireme::checkpoint
