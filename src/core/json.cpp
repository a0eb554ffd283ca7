#include "core/json.hpp"

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>
#include <vector>

#include "core/error.hpp"
#include "core/file.hpp"

namespace trireme {
namespace {

/// Line and column (both from 1) of a byte position.
std::string line_column(std::string_view text, std::size_t byte) {
  std::size_t line = 1;
  std::size_t column = 1;
  for (std::size_t i = 0; i + 1 < byte && i < text.size(); ++i) {
    if (text[i] == '\n') {
      ++line;
      column = 1;
    } else {
      ++column;
    }
  }
  return cat(line, ":", column);
}

template <class Tree>
Tree parse_tree(std::string_view text, std::string_view where, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes) {
    fail(ErrorKind::data,
         where,
         ": JSON of ",
         text.size(),
         " bytes, at most ",
         limits.max_bytes,
         " are read");
  }
  std::vector<std::unordered_set<std::string>> keys;
  const auto guard = [&](int depth, typename Tree::parse_event_t event, Tree& parsed) {
    using Event = typename Tree::parse_event_t;
    const bool opens = event == Event::object_start || event == Event::array_start;
    if (opens && depth >= limits.max_depth)
      fail(ErrorKind::data, where, ": JSON nested deeper than ", limits.max_depth);
    if (event == Event::object_start) keys.emplace_back();
    if (event == Event::object_end) keys.pop_back();
    if (event == Event::key && !keys.back().insert(parsed.template get<std::string>()).second) {
      fail(ErrorKind::data,
           where,
           ": key '",
           parsed.template get<std::string>(),
           "' appears twice in one object");
    }
    return true;
  };
  try {
    return Tree::parse(text, guard);
  } catch (const typename Tree::parse_error& error) {
    fail(ErrorKind::data,
         where,
         ":",
         line_column(text, error.byte),
         ": not valid JSON: ",
         error.what());
  } catch (const typename Tree::exception& error) {  // a number that no double can hold
    fail(ErrorKind::data, where, ": not valid JSON: ", error.what());
  }
}

}  // namespace

Json parse_json(std::string_view text, std::string_view where, const JsonLimits& limits) {
  return parse_tree<Json>(text, where, limits);
}

SortedJson parse_sorted_json(std::string_view text,
                             std::string_view where,
                             const JsonLimits& limits) {
  return parse_tree<SortedJson>(text, where, limits);
}

Json read_json(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(read_file(path, limits.max_bytes), path.string(), limits);
}

template <class T>
T json_get(const Json& object, std::string_view key, std::string_view where) {
  const auto found = object.is_object() ? object.find(std::string(key)) : object.end();
  if (!object.is_object() || found == object.end())
    fail(ErrorKind::data, where, ": key '", key, "' is missing");
  const Json& value = *found;
  bool matches = false;
  if constexpr (std::is_same_v<T, bool>) {
    matches = value.is_boolean();
  } else if constexpr (std::is_same_v<T, std::string>) {
    matches = value.is_string();
  } else if constexpr (std::is_same_v<T, double>) {
    matches = value.is_number();
  } else if constexpr (std::is_same_v<T, std::uint64_t>) {
    matches = value.is_number_unsigned();
  } else {
    const bool too_large =
        value.is_number_unsigned() &&
        value.get<std::uint64_t>() > static_cast<std::uint64_t>(std::numeric_limits<T>::max());
    if (too_large)
      fail(ErrorKind::data,
           where,
           ": key '",
           key,
           "' = ",
           value.get<std::uint64_t>(),
           " is too large");
    matches = value.is_number_integer();
  }
  if (!matches)
    fail(ErrorKind::data, where, ": key '", key, "' has the wrong type: ", value.type_name());
  return value.get<T>();
}

template bool json_get<bool>(const Json&, std::string_view, std::string_view);
template std::int64_t json_get<std::int64_t>(const Json&, std::string_view, std::string_view);
template std::uint64_t json_get<std::uint64_t>(const Json&, std::string_view, std::string_view);
template double json_get<double>(const Json&, std::string_view, std::string_view);
template std::string json_get<std::string>(const Json&, std::string_view, std::string_view);

}  // namespace trireme
