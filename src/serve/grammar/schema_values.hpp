#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/files/json.hpp"

namespace trireme::serve {

/// Thrown if a schema cannot become a grammar.
struct SchemaProblem {
  std::string path;  // "properties.age.multipleOf"; empty for the whole schema
  std::string reason;
};

/// Keywords that replace all other assertions of a schema.
inline constexpr std::array kWholeSchemas{"$ref", "anyOf", "oneOf", "allOf"};

/// Resolves a reference within `root`: "#" and a JSON pointer (RFC 6901). Returns null if there is
/// no target.
const Json* referenced(const Json& root, const std::string& reference);

/// Returns null if `schema` has no such member.
const Json* member(const Json& schema, const char* key);
std::string below(const std::string& path, const std::string& key);
/// Reads a count such as minItems or maxLength. Throws SchemaProblem.
std::optional<std::int64_t> count_of(const Json& schema, const char* key, const std::string& path);

/// Returns the values that const and enum of a schema allow and that match the type, lengths and
/// limits of the schema. Throws SchemaProblem if no value is left or if the schema has other
/// keywords.
std::vector<Json> listed_values(const Json& schema, const std::string& path);

}  // namespace trireme::serve
