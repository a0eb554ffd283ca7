#include "text/json/json_break.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "core/error.hpp"
#include "text/json/odd_numbers.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::text {
namespace {

constexpr std::size_t kShownBytes = 12;  // number of bytes shown before and after the error

/// Returns the 1-based position of the first syntax error, 0 for another error (such as a number
/// that is too large), and none if `json` is valid.
std::optional<std::size_t> error_position(std::string_view json) {
  using Parsed = nlohmann::json;
  try {
    [[maybe_unused]] const Parsed nothing =
        Parsed::parse(json, [](int, Parsed::parse_event_t, Parsed&) { return false; });
  } catch (const Parsed::parse_error& error) {
    constexpr int kUnexpectedToken = 101;
    return error.id == kUnexpectedToken ? std::max<std::size_t>(error.byte, 1) : 0;
  } catch (const Parsed::exception&) {
    return 0;
  }
  return std::nullopt;
}

}  // namespace

std::string json_break(std::string_view json) {
  if (quote_odd_numbers(json)) return "";  // quoting would change the positions
  const std::size_t position = error_position(json).value_or(0);
  if (position == 0) return "";
  const std::size_t at = position - 1;
  if (at >= json.size()) return formatted(" (it ends too early, after {} bytes)", json.size());
  const std::size_t begin = at - std::min(at, kShownBytes);
  std::string shown;
  append_lossy_utf8(json.substr(begin, at + kShownBytes - begin), shown);
  return formatted(" (at byte {}, near '{}')", at, shown);
}

std::string record_break(std::string_view line) {
  const std::string_view trimmed = line.substr(0, line.find_last_not_of(" \t\r\n") + 1);
  if (trimmed.ends_with(',') && !error_position(trimmed.substr(0, trimmed.size() - 1))) {
    return " (a comma follows the record, as in a JSON array. Each line must be one JSON object without a comma after it. Remove the commas with: sed 's/,[[:space:]]*$//' FILE > records.jsonl)";
  }
  return json_break(line);
}

}  // namespace trireme::text
