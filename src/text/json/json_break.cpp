#include "text/json/json_break.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "text/json/odd_numbers.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme {
namespace {

constexpr std::size_t kShownBytes = 12;  // number of bytes shown before and after the error

/// A SAX handler that only keeps the position of the first error.
struct BreakFinder : nlohmann::json_sax<nlohmann::json> {
  std::size_t place = 0;  // 1-based position; 0: no error
  bool is_syntax = false;

  bool null() override { return true; }

  bool boolean(bool) override { return true; }

  bool number_integer(number_integer_t) override { return true; }

  bool number_unsigned(number_unsigned_t) override { return true; }

  bool number_float(number_float_t, const string_t&) override { return true; }

  bool string(string_t&) override { return true; }

  bool binary(binary_t&) override { return true; }

  bool start_object(std::size_t) override { return true; }

  bool key(string_t&) override { return true; }

  bool end_object() override { return true; }

  bool start_array(std::size_t) override { return true; }

  bool end_array() override { return true; }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    place = std::max<std::size_t>(position, 1);
    is_syntax = error.id == 101;  // parse_error.101: unexpected token
    return false;
  }
};

}  // namespace

std::string json_break(std::string_view json) {
  if (quote_odd_numbers(json)) return "";  // quoting would change the positions
  BreakFinder finder;
  if (nlohmann::json::sax_parse(json, &finder) || !finder.is_syntax) return "";
  const std::size_t at = finder.place - 1;
  if (at >= json.size()) return formatted(" (it ends too early, after {} bytes)", json.size());
  const std::size_t begin = at - std::min(at, kShownBytes);
  std::string shown;
  append_lossy_utf8(json.substr(begin, at + kShownBytes - begin), shown);
  return formatted(" (at byte {}, near '{}')", at, shown);
}

std::string record_break(std::string_view line) {
  const std::string_view trimmed = line.substr(0, line.find_last_not_of(" \t\r\n") + 1);
  if (trimmed.ends_with(',')) {
    BreakFinder finder;
    if (nlohmann::json::sax_parse(trimmed.substr(0, trimmed.size() - 1), &finder))
      return " (a comma follows the record, as in a JSON array. Each line must be one JSON object without a comma after it. Remove the commas with: sed 's/,[[:space:]]*$//' FILE > records.jsonl)";
  }
  return json_break(line);
}

}  // namespace trireme
