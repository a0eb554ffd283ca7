#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/files/json.hpp"
#include "serve/grammar/number_ranges.hpp"

namespace trireme::serve {

/// Thrown if a schema cannot become a grammar.
struct SchemaProblem {
  std::string path;  // "properties.age.multipleOf"; empty for the whole schema
  std::string reason;
};

/// Keywords that must be the only assertion of a schema.
inline constexpr std::array kWholeSchemas{"$ref", "anyOf", "oneOf", "allOf"};

/// Returns the target of a reference within `root`. A reference is "#" and a JSON pointer (RFC
/// 6901). Returns null if there is no target.
const Json* referenced(const Json& root, const std::string& reference);

/// Returns the member `key` of `schema`; null if there is none.
const Json* member(const Json& schema, const char* key);
std::string below(const std::string& path, const std::string& key);
/// Reads a count such as minItems or maxLength. Throws SchemaProblem if the value is invalid.
std::optional<std::int64_t> count_of(const Json& schema, const char* key, const std::string& path);

/// Returns the names in `type`, without a check of the names; empty if the schema has no type.
/// Throws SchemaProblem if `type` is not a string or a short list of strings.
std::vector<std::string> types_of(const Json& schema, const std::string& path);

/// Limits of numbers; nothing: no limit.
struct NumberLimits {
  std::optional<NumberLimit> least;
  std::optional<NumberLimit> most;
};

struct IntegerLimits {
  std::optional<std::int64_t> least;
  std::optional<std::int64_t> most;
};

/// Return the limits that minimum, maximum, exclusiveMinimum and exclusiveMaximum set together.
/// Throw SchemaProblem if a limit is not a number. integer_limits_of() also throws if a limit has
/// more than 64 bits or if there is no integer between the limits.
NumberLimits number_limits_of(const Json& schema, const std::string& path);
IntegerLimits integer_limits_of(const Json& schema, const std::string& path);

/// Returns the values of const or enum that also match the type, lengths and limits of the schema.
/// Throws SchemaProblem if no value matches, or if the schema has other keywords.
std::vector<Json> listed_values(const Json& schema, const std::string& path);

}  // namespace trireme::serve
