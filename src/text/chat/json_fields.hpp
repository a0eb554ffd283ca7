#pragma once
#include <simdjson.h>

#include <optional>
#include <string>
#include <string_view>

#include "core/error.hpp"

/// Fields of JSON objects as Python reads them; for chat_reader.cpp alone, which throws and catches.
namespace trireme::chat_json {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;
using simdjson::dom::object;

/// Thrown and caught by the reader: a record is left in the middle of nested lists.
struct Refused {
  std::string reason;
  bool bad_text = false;
};

template <class... Args>
[[noreturn]] void refuse(const Args&... args) {
  throw Refused{cat(args...)};
}

/// Of equal keys the last counts, as in Python.
inline std::optional<element> find(const object& parent, std::string_view key) {
  std::optional<element> found;
  for (const auto& member : parent) {
    if (member.key == key) found = member.value;
  }
  return found;
}

/// Absent and null are the same.
inline std::optional<element> find_value(const object& parent, std::string_view key) {
  std::optional<element> found = find(parent, key);
  return found && found->is_null() ? std::nullopt : found;
}

/// Of one that find_value does not find.
[[noreturn]] inline void refuse_missing(const object& parent, std::string_view key) {
  if (find(parent, key)) refuse("field '", key, "' is null");
  refuse("no field '", key, "'");
}

}  // namespace trireme::chat_json
