#pragma once
#include <cstddef>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

/// Bounded JSON: untrusted text cannot exhaust the stack or memory. Keys keep their order.
/// A .cpp that looks inside a value includes <nlohmann/json.hpp> itself.
namespace trireme {

using Json = nlohmann::ordered_json;

/// Keys sorted, found in logarithmic time: for objects of many thousand keys (Json looks through
/// all of them).
using SortedJson = nlohmann::json;

struct JsonLimits {
  std::size_t max_bytes = std::size_t{256} << 20;
  int max_depth = 64;
  bool last_key_counts = false;  // of a key that appears twice in an object; else an error
};

/// `where` names the text in errors (a path). Throws Error(data): syntax with line and column, too
/// deep, too large, duplicate key.
Json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits = {});
SortedJson parse_sorted_json(std::string_view text, std::string_view where,
                             const JsonLimits& limits = {});
Json read_json(const std::filesystem::path& path, const JsonLimits& limits = {});

/// The member `key` of object `object`, as T. T: bool, int64_t, uint64_t, double, std::string.
/// Throws Error(data) naming `where` and the key if it is absent or of another type.
template <class T>
T json_get(const Json& object, std::string_view key, std::string_view where);

}  // namespace trireme
