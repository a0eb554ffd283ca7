#include "text/json/python_values.hpp"

#include <unordered_map>
#include <utility>
#include <vector>

#include "text/json/odd_numbers.hpp"
#include "text/json/python_json.hpp"

namespace trireme::chat_json {

simdjson::error_code PythonValues::parse(simdjson::dom::parser& with, std::string_view json,
                                         bool has_padding, std::string& storage, element& parsed) {
  const simdjson::error_code code = with.parse(json.data(), json.size(), !has_padding).get(parsed);
  if (code == simdjson::SUCCESS) return code;
  auto numbers = quote_odd_numbers(json);
  if (!numbers) return code;
  quoted_ = true;
  storage = std::move(*numbers);
  return with.parse(storage).get(parsed);
}

std::optional<std::string_view> PythonValues::odd_number(std::string_view text) const {
  if (!quoted_ || !text.starts_with(kOddNumber)) return std::nullopt;
  return text.substr(kOddNumber.size());
}

std::string_view PythonValues::text_of(const element& value, std::string_view where,
                                       const char* what) const {
  std::string_view text;
  if (value.get(text) != simdjson::SUCCESS || odd_number(text))
    refuse(where, what, " is not a string");
  if (!simdjson::validate_utf8(text))  // some versions of simdjson accept a lone low surrogate
    throw Refused{"the text has a lone surrogate or invalid UTF-8", true};
  return text;
}

void PythonValues::append_object(const object& value, std::string& out) const {
  // A Python dict keeps the position of the first and the value of the last of equal keys.
  std::vector<std::pair<std::string_view, element>> members;
  std::unordered_map<std::string_view, std::size_t> places;
  for (const auto& member : value) {
    const auto [place, is_new] = places.emplace(member.key, members.size());
    if (is_new) {
      members.emplace_back(member.key, member.value);
    } else {
      members[place->second].second = member.value;
    }
  }
  out += '{';
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i != 0) out += ", ";
    append_json_text(members[i].first, out);
    out += ": ";
    append_json(members[i].second, out);
  }
  out += '}';
}

/// The parser limits the depth to 1,024.
void PythonValues::append_json(const element& value, std::string& out) const {
  switch (value.type()) {
    case element_type::OBJECT:
      return append_object(object(value), out);
    case element_type::ARRAY: {
      out += '[';
      bool first = true;
      for (const element each : array(value)) {
        if (!std::exchange(first, false)) out += ", ";
        append_json(each, out);
      }
      out += ']';
      return;
    }
    case element_type::STRING:
      if (const auto number = odd_number(std::string_view(value))) {
        out += *number;
        return;
      }
      return append_json_text(text_of(value, "", "a string in JSON"), out);
    case element_type::INT64:
      out += std::to_string(std::int64_t(value));
      return;
    case element_type::UINT64:
      out += std::to_string(std::uint64_t(value));
      return;
    case element_type::DOUBLE:
      return append_json_number(double(value), out);
    case element_type::BOOL:
      out += bool(value) ? "true" : "false";
      return;
    case element_type::NULL_VALUE:
      out += "null";
      return;
  }
}

}  // namespace trireme::chat_json
