#pragma once
#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

/// Bounded JSON: untrusted text cannot exhaust the stack or memory. Keys keep their order. A .cpp
/// that accesses values includes <nlohmann/json.hpp> itself.
namespace trireme {

using Json = nlohmann::ordered_json;

/// JSON with sorted keys, for objects with many thousand keys. Json searches linearly.
using SortedJson = nlohmann::json;

struct JsonLimits {
  std::size_t max_bytes = std::size_t{256} << 20;
  int max_depth = 64;
  bool last_key_counts = false;  // a repeated key has its last value, as in Python; false: an error
};

/// Parses JSON text. `where` names the text in errors (a path). Throws Error(data) for a syntax
/// error (with line and column), text that is too deep or too large, and a duplicate key.
Json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits = {});
SortedJson parse_sorted_json(std::string_view text, std::string_view where,
                             const JsonLimits& limits = {});
Json read_json(const std::filesystem::path& path, const JsonLimits& limits = {});

/// Returns the member `key` of `object` as T: bool, int64_t, uint64_t, double or std::string.
/// Throws Error(data) with `where` and the key if it is absent or has another type.
template <class T>
T json_get(const Json& object, std::string_view key, std::string_view where);

}  // namespace trireme
