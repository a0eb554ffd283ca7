#pragma once
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "text/json/json_fields.hpp"

namespace trireme::text {

/// Appends `text` like Python's json.dumps(text, ensure_ascii=False).
void append_json_text(std::string_view text, std::string& out);

/// Appends `value` like repr(float) and json.dumps of Python: the shortest digits that read back
/// equal, with an exponent below 1e-4 and from 1e16 on. `value` must be finite.
void append_json_number(double value, std::string& out);

namespace chat_json {

/// Reads JSON like Python's json.loads and writes values like json.dumps. Odd numbers
/// (odd_numbers.hpp) are strings in the parsed JSON; this class tells them from real strings.
class PythonValues {
 public:
  void start() { quoted_ = false; }

  /// Parses `json` with `with`. `has_padding`: simdjson's padding after the text is readable.
  /// `storage` holds the text of `parsed` if it has odd numbers.
  simdjson::error_code parse(simdjson::dom::parser& with, std::string_view json, bool has_padding,
                             std::string& storage, element& parsed);
  /// Returns the number if `text` stands for an odd number.
  [[nodiscard]] std::optional<std::string_view> odd_number(std::string_view text) const;
  /// Returns the string `value`. Throws InvalidRecord with `where` and `what` for any other type.
  std::string_view text_of(const element& value, std::string_view where, const char* what) const;
  /// Appends `value` like json.dumps. Throws InvalidRecord for a string that is not UTF-8.
  void append_json(const element& value, std::string& out) const;

 private:
  void append_object(const object& value, std::string& out) const;

  bool quoted_ = false;  // parsed strings may stand for odd numbers
};

}  // namespace chat_json
}  // namespace trireme::text
