#include "serve/openai/body_fields.hpp"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "core/edit_distance.hpp"
#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "serve/openai/api_error.hpp"

namespace trireme::serve {
namespace {

/// Returns a text for a value in error messages: numbers and short strings themselves, the type of
/// other values.
std::string shown_value(const Json& value) {
  constexpr std::size_t kLongest = 40;
  if (value.is_number() || value.is_boolean()) return json_text(value);
  if (value.is_string() && value.get_ref<const std::string&>().size() <= kLongest)
    return json_text(value);
  return value.is_object() || value.is_array() || value.is_string()
             ? formatted("{} {}", value.is_string() ? "a" : "an", value.type_name())
             : value.type_name();
}

}  // namespace

BodyFields::BodyFields(const Json& object, std::string prefix)
    : object_(&object),
      prefix_(std::move(prefix)),
      asked_(std::make_shared<std::set<std::string>>()) {}

const Json* BodyFields::find(std::string_view key) const {
  asked_->emplace(key);
  const auto found = object_->find(std::string(key));
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

void BodyFields::refuse_unknown() const {
  for (const auto& [key, value] : object_->items()) {
    if (value.is_null() || asked_->contains(key)) continue;
    const std::vector<std::string> known(asked_->begin(), asked_->end());
    throw ApiError(400,
                   formatted("Unrecognized request argument supplied: {}{}", name_of(key),
                             did_you_mean(key, known)),
                   name_of(key), "unknown_parameter");
  }
}

std::string BodyFields::name_of(std::string_view key) const {
  return prefix_ + std::string(key);
}

void BodyFields::refuse(std::string_view key, std::string_view allowed) const {
  const Json* value = find(key);
  refuse_field(name_of(key), formatted("{} is {}, must be {}", name_of(key),
                                       value == nullptr ? "absent" : shown_value(*value), allowed));
}

std::optional<bool> BodyFields::boolean(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_boolean()) refuse(key, "true or false");
  return value->get<bool>();
}

std::optional<std::int64_t> BodyFields::integer(std::string_view key, std::int64_t least,
                                                std::int64_t most) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool is_too_large =
      value->is_number_unsigned() &&
      value->get<std::uint64_t>() > std::uint64_t{std::numeric_limits<std::int64_t>::max()};
  const bool fits = value->is_number_integer() && !is_too_large;
  if (!fits || value->get<std::int64_t>() < least || value->get<std::int64_t>() > most) {
    refuse(key, !is_too_large && most == std::numeric_limits<std::int64_t>::max()
                    ? formatted("an integer of {} or more", least)
                    : formatted("an integer in [{}, {}]", least, most));
  }
  return value->get<std::int64_t>();
}

std::optional<double> BodyFields::number(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(key, "a number");
  return value->get<double>();
}

std::optional<std::string> BodyFields::text(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(key, "a string");
  return value->get<std::string>();
}

std::optional<BodyFields> BodyFields::object(std::string_view key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) refuse(key, "an object");
  return BodyFields(*value, name_of(key) + ".");
}

Json parse_body(std::string_view body) {
  try {
    Json parsed = parse_json(body, "the request");
    if (!parsed.is_object())
      throw ApiError(400,
                     formatted("the request is {}, must be a JSON object", parsed.type_name()));
    return parsed;
  } catch (const Error& error) {
    throw ApiError(400, error.what(), "", "invalid_json");
  }
}

}  // namespace trireme::serve
