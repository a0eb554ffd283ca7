#pragma once
#include <simdjson.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "text/json/odd_numbers.hpp"
#include "text/json/unread_field.hpp"

/// Fields of JSON objects, with the semantics of Python's json.
namespace trireme::text::chat_json {

using simdjson::dom::array;
using simdjson::dom::element;
using simdjson::dom::element_type;
using simdjson::dom::object;

/// Thrown to leave nested lists in the middle of a record. The reader catches it.
struct InvalidRecord {
  std::string reason;
  bool bad_text = false;
};

template <class... Args>
[[noreturn]] void refuse(const Args&... args) {
  throw InvalidRecord{cat(args...)};
}

/// Finds a member. The last of equal keys counts, as in Python.
inline std::optional<element> find(const object& parent, std::string_view key) {
  std::optional<element> found;
  for (const auto& member : parent) {
    if (member.key == key) found = member.value;
  }
  return found;
}

/// Finds a member that is not null.
inline std::optional<element> find_value(const object& parent, std::string_view key) {
  std::optional<element> found = find(parent, key);
  return found && found->is_null() ? std::nullopt : found;
}

/// Throws InvalidRecord for a key that is null or absent.
[[noreturn]] inline void refuse_missing(const object& parent, std::string_view key) {
  if (find(parent, key)) refuse("field '", key, "' is null");
  refuse("no field '", key, "'");
}

/// Returns true if `value` contains a string that is not blank, at any depth.
inline bool holds_text(const element& value) {
  if (value.is_string()) {
    const std::string_view text(value);
    return !text.starts_with(kOddNumber) &&
           text.find_first_not_of(" \t\r\n") != std::string_view::npos;
  }
  if (value.is_array()) {
    const array list(value);
    return std::any_of(list.begin(), list.end(), holds_text);
  }
  if (!value.is_object()) return false;
  for (const auto& member : object(value)) {
    if (holds_text(member.value)) return true;
  }
  return false;
}

/// Returns false for null, a blank string, an empty list and an empty object.
inline bool holds_something(const element& value) {
  if (value.is_string())
    return std::string_view(value).find_first_not_of(" \t\r\n") != std::string_view::npos;
  if (value.is_array()) return array(value).begin() != array(value).end();
  if (value.is_object()) return object(value).begin() != object(value).end();
  return !value.is_null();
}

/// Appends the non-empty fields of `parent` that are not in `read`, as prefix + name.
inline void add_unread(const object& parent, std::span<const std::string_view> read,
                       std::string_view prefix, std::vector<UnreadField>& unread) {
  for (const auto& member : parent) {
    if (std::find(read.begin(), read.end(), member.key) != read.end()) continue;
    if (holds_something(member.value))
      unread.push_back({cat(prefix, member.key), holds_text(member.value)});
  }
}

/// Sorts by name and removes duplicates.
inline void merge_unread(std::vector<UnreadField>& unread) {
  if (unread.size() < 2) return;
  std::sort(unread.begin(), unread.end(), [](const UnreadField& a, const UnreadField& b) {
    return a.name != b.name ? a.name < b.name : a.has_text > b.has_text;
  });
  const auto same = [](const UnreadField& a, const UnreadField& b) { return a.name == b.name; };
  unread.erase(std::unique(unread.begin(), unread.end(), same), unread.end());
}

}  // namespace trireme::text::chat_json
