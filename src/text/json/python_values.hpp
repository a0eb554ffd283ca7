#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "text/json/json_fields.hpp"

namespace trireme::chat_json {

/// Reads JSON as Python's json.loads does, and writes its values as json.dumps does: numbers that
/// simdjson refuses (odd_numbers.hpp) stand in the parsed JSON as texts, which this class tells
/// from true texts.
class PythonValues {
 public:
  /// Forgets the numbers of the last record.
  void start() { quoted_ = false; }

  /// Parses `json` with `with`. `has_padding`: simdjson's padding is readable behind it. `storage`
  /// holds the text that `parsed` refers to if it has odd numbers.
  simdjson::error_code parse(simdjson::dom::parser& with, std::string_view json, bool has_padding,
                             std::string& storage, element& parsed);
  /// Returns the digits of a number that stands as a text.
  [[nodiscard]] std::optional<std::string_view> odd_number(std::string_view text) const;
  /// Returns the text of `value`. Throws Refused with `where` and `what` for any other type.
  std::string_view text_of(const element& value, std::string_view where, const char* what) const;
  /// Appends `value` as json.dumps writes it. Throws Refused for a text that is not UTF-8.
  void append_json(const element& value, std::string& out) const;

 private:
  void append_object(const object& value, std::string& out) const;

  bool quoted_ = false;  // the parsed texts may hold odd numbers
};

}  // namespace trireme::chat_json
