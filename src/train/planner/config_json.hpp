#pragma once
#include <nlohmann/json.hpp>
#include <string>

#include "core/files/json.hpp"

/// Converts configuration keys to JSON and back: {"tp": 2, "schedule": "1f1b"}.
namespace trireme::planner {

template <class Config>
Json config_json(const Config& config) {
  Json json = Json::object();
  Config::fields(config,
                 [&](const char* name, const auto& value, const auto&...) { json[name] = value; });
  return json;
}

/// Sets the keys that `json` has. Throws Error(data) for a value of another type.
template <class Config>
void take_config(const Json& json, const std::string& where, Config& config) {
  Config::fields(config, [&](const char* name, auto& value, const auto&...) {
    if (json.contains(name)) value = json_get<std::decay_t<decltype(value)>>(json, name, where);
  });
}

}  // namespace trireme::planner
