#include "serve/grammar/schema_values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::serve {
namespace {

/// Keywords that describe parts of a value. They are not supported together with const or enum.
constexpr std::array kOfParts{"additionalProperties", "items",      "maxItems", "minItems",
                              "prefixItems",          "properties", "required"};

/// The keywords that select among the values of const and enum.
struct ValueLimits {
  std::vector<std::string> types;  // empty: all types
  std::optional<std::int64_t> min_length;
  std::optional<std::int64_t> max_length;
  const Json* minimum = nullptr;
  const Json* maximum = nullptr;
};

ValueLimits limits_of(const Json& schema, const std::string& path) {
  const auto number = [&](const char* key) {
    const Json* given = member(schema, key);
    if (given != nullptr && !given->is_number())
      throw SchemaProblem{below(path, key), "must be a number"};
    return given;
  };
  return {types_of(schema, path), count_of(schema, "minLength", path),
          count_of(schema, "maxLength", path), number("minimum"), number("maximum")};
}

bool is_of_type(const Json& value, const std::string& type) {
  if (type == "integer")
    return value.is_number_integer() ||
           (value.is_number() && value.get<double>() == std::floor(value.get<double>()));
  return type == (value.is_number() ? "number" : value.type_name());
}

bool fits(const Json& value, const ValueLimits& limits) {
  if (!limits.types.empty() &&
      std::none_of(limits.types.begin(), limits.types.end(),
                   [&](const std::string& type) { return is_of_type(value, type); }))
    return false;
  if (value.is_string()) {
    const auto length =
        static_cast<std::int64_t>(text::utf8_length(value.get_ref<const std::string&>()));
    return (!limits.min_length || length >= *limits.min_length) &&
           (!limits.max_length || length <= *limits.max_length);
  }
  if (!value.is_number()) return true;
  return (limits.minimum == nullptr || value >= *limits.minimum) &&
         (limits.maximum == nullptr || value <= *limits.maximum);
}

}  // namespace

const Json* referenced(const Json& root, const std::string& reference) {
  if (!reference.starts_with('#')) return nullptr;
  try {
    return &root.at(Json::json_pointer(reference.substr(1)));
  } catch (const Json::exception&) {
    return nullptr;
  }
}

const Json* member(const Json& schema, const char* key) {
  const auto found = schema.find(key);
  return found == schema.end() ? nullptr : &*found;
}

std::string below(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

std::optional<std::int64_t> count_of(const Json& schema, const char* key, const std::string& path) {
  constexpr std::int64_t kMostCount = 100'000;
  const Json* value = member(schema, key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() > kMostCount)
    throw SchemaProblem{below(path, key), formatted("must be an integer in [0, {}]", kMostCount)};
  return value->get<std::int64_t>();
}

std::vector<std::string> types_of(const Json& schema, const std::string& path) {
  constexpr std::size_t kNumTypes = 7;
  const Json* type = member(schema, "type");
  if (type == nullptr) return {};
  const Json list = type->is_array() ? *type : Json::array({*type});
  const bool is_valid =
      !list.empty() && list.size() <= kNumTypes &&
      std::all_of(list.begin(), list.end(), [](const Json& each) { return each.is_string(); });
  if (!is_valid) {
    throw SchemaProblem{below(path, "type"),
                        formatted("must be a string or a list of 1 to {} strings", kNumTypes)};
  }
  return list.get<std::vector<std::string>>();
}

std::vector<Json> listed_values(const Json& schema, const std::string& path) {
  const Json* only = member(schema, "const");
  const Json* list = member(schema, "enum");
  if (list != nullptr && (!list->is_array() || list->empty()))
    throw SchemaProblem{below(path, "enum"), "must be a list of values"};
  for (const char* key : kOfParts) {
    if (schema.contains(key))
      throw SchemaProblem{below(path, key), formatted("{} together with {} is not supported", key,
                                                      list != nullptr ? "enum" : "const")};
  }
  const ValueLimits limits = limits_of(schema, path);
  std::vector<Json> values;
  for (const Json& value : list != nullptr ? *list : Json::array({*only})) {
    const bool is_chosen = only == nullptr || value == *only;
    if (is_chosen && fits(value, limits)) values.push_back(value);
  }
  if (values.empty())
    throw SchemaProblem{below(path, list != nullptr ? "enum" : "const"),
                        "must have a value that matches the other keywords"};
  return values;
}

}  // namespace trireme::serve
