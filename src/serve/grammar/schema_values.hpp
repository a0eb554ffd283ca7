#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/files/json.hpp"

namespace trireme {

/// Why a schema cannot be a grammar.
struct SchemaProblem {
  std::string path;  // "properties.age.multipleOf"; "" for the whole
  std::string reason;
};

/// What stands for a whole schema.
inline constexpr std::array kWholeSchemas{"$ref", "anyOf", "oneOf", "allOf"};

/// What "#" and a JSON pointer (RFC 6901) name within `root`; null if there is none.
const Json* referenced(const Json& root, const std::string& reference);

/// Null if `schema` has no such member.
const Json* member(const Json& schema, const char* key);
/// The path of a member.
std::string below(const std::string& path, const std::string& key);
/// A count: minItems, maxLength. Throws SchemaProblem.
std::optional<std::int64_t> count_of(const Json& schema, const char* key, const std::string& path);

/// The values of a schema with const or enum: those of both, of the types, lengths and limits that stand
/// beside them. Throws SchemaProblem if none is left, and for what else stands there.
std::vector<Json> listed_values(const Json& schema, const std::string& path);

}  // namespace trireme
