#include "serve/grammar/schema_values.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::serve {
namespace {

/// Keywords that describe parts of a value. They are not supported together with const or enum.
constexpr std::array kOfParts{
    "additionalProperties", "items",      "maxItems", "minItems", "pattern",
    "prefixItems",          "properties", "required"};

/// The keywords that select among the values of const and enum.
struct ValueLimits {
  std::vector<std::string> types;  // empty: all types
  std::optional<std::int64_t> min_length;
  std::optional<std::int64_t> max_length;
  NumberLimits numbers;
};

ValueLimits limits_of(const Json& schema, const std::string& path) {
  return {types_of(schema, path), count_of(schema, "minLength", path),
          count_of(schema, "maxLength", path), number_limits_of(schema, path)};
}

/// A keyword that limits numbers.
struct LimitKeyword {
  const char* key;
  bool is_least;
  bool is_exclusive;
};

constexpr std::array<LimitKeyword, 4> kLimits{{{"minimum", true, false},
                                               {"exclusiveMinimum", true, true},
                                               {"maximum", false, false},
                                               {"exclusiveMaximum", false, true}}};

/// Returns a limit of numbers; null if there is none. (In draft 4, exclusiveMinimum and
/// exclusiveMaximum are Booleans, and `false` has no effect.)
const Json* limit_in(const Json& schema, const char* key, bool is_exclusive,
                     const std::string& path) {
  const Json* given = member(schema, key);
  if (given == nullptr || (is_exclusive && *given == false)) return nullptr;
  if (!given->is_number()) throw SchemaProblem{below(path, key), "must be a number"};
  return given;
}

constexpr double kInt64Limit = 9.2e18;

/// Returns the nearest integer inside a limit.
std::int64_t integer_in(const Json& value, bool is_least, bool is_exclusive,
                        const std::string& path) {
  constexpr auto kMaxInt64 = std::numeric_limits<std::int64_t>::max();
  constexpr auto kMinInt64 = std::numeric_limits<std::int64_t>::min();
  const bool is_large = value.is_number_unsigned() && value.get<std::uint64_t>() > kMaxInt64;
  const bool is_far = value.is_number_float() && std::abs(value.get<double>()) >= kInt64Limit;
  const bool is_beyond = is_exclusive && value == (is_least ? kMaxInt64 : kMinInt64);
  if (is_large || is_far || is_beyond) throw SchemaProblem{path, "must be a 64-bit integer"};
  const std::int64_t inward = is_least ? 1 : -1;
  if (value.is_number_integer()) return value.get<std::int64_t>() + (is_exclusive ? inward : 0);
  const auto number = value.get<double>();
  const auto inside = static_cast<std::int64_t>(is_least ? std::ceil(number) : std::floor(number));
  return inside + (is_exclusive && static_cast<double>(inside) == number ? inward : 0);
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
  const auto number = value.get<double>();
  const auto& [least, most] = limits.numbers;
  return (!least || number > least->value || (number == least->value && !least->is_exclusive)) &&
         (!most || number < most->value || (number == most->value && !most->is_exclusive));
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

NumberLimits number_limits_of(const Json& schema, const std::string& path) {
  NumberLimits limits;
  for (const auto& [key, is_least, is_exclusive] : kLimits) {
    const Json* given = limit_in(schema, key, is_exclusive, path);
    if (given == nullptr) continue;
    const NumberLimit limit{given->get<double>(), is_exclusive};
    std::optional<NumberLimit>& tightest = is_least ? limits.least : limits.most;
    const bool is_tighter =
        !tightest || (is_least ? limit.value >= tightest->value : limit.value <= tightest->value);
    if (is_tighter) tightest = limit;
  }
  return limits;
}

IntegerLimits integer_limits_of(const Json& schema, const std::string& path) {
  IntegerLimits limits;
  for (const auto& [key, is_least, is_exclusive] : kLimits) {
    const Json* given = limit_in(schema, key, is_exclusive, path);
    if (given == nullptr) continue;
    const std::int64_t limit = integer_in(*given, is_least, is_exclusive, below(path, key));
    if (is_least)
      limits.least = std::max(limits.least.value_or(limit), limit);
    else
      limits.most = std::min(limits.most.value_or(limit), limit);
    if (limits.least && limits.most && *limits.least > *limits.most)
      throw SchemaProblem{below(path, key), "must not be less than the lower limit"};
  }
  return limits;
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
