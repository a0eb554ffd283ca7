#include "text/json/python_values.hpp"

#include <array>
#include <charconv>
#include <cstdio>
#include <unordered_map>
#include <utility>
#include <vector>

#include "text/json/odd_numbers.hpp"

namespace trireme::text {

void append_json_text(std::string_view text, std::string& out) {
  constexpr std::string_view kEscaped = "\"\\\n\r\t\b\f";
  constexpr std::string_view kLetters = "\"\\nrtbf";
  out += '"';
  for (const char c : text) {
    if (const std::size_t at = kEscaped.find(c); at != std::string_view::npos) {
      out.append(1, '\\').append(1, kLetters[at]);
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      out += escape.data();
    } else {
      out += c;
    }
  }
  out += '"';
}

void append_json_number(double value, std::string& out) {
  // "d.ddde+XX" with the fewest digits, which are then written in Python's layout.
  std::array<char, 40> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                    std::chars_format::scientific);
  std::string_view text(buffer.data(), static_cast<std::size_t>(result.ptr - buffer.data()));
  if (text.starts_with('-')) {
    out += '-';
    text.remove_prefix(1);
  }
  const std::size_t e = text.find('e');
  int exponent = 0;
  const char* digits_of_exponent = text.data() + e + (text[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, text.data() + text.size(), exponent);
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);

  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out.append(1, '.').append(digits, 1);
    const int size = exponent < 0 ? -exponent : exponent;
    out.append(exponent < 0 ? "e-" : "e+").append(size < 10 ? "0" : "");
    out += std::to_string(size);
  } else if (exponent < 0) {
    out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
  } else {
    const auto whole = static_cast<std::size_t>(exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    out.append(digits, 0, whole).append(1, '.');
    out += digits.size() == whole ? "0" : digits.substr(whole);
  }
}

namespace chat_json {

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
    refuse(where, what, " is not a text");
  if (!simdjson::validate_utf8(text))  // some versions of simdjson accept a lone low surrogate
    throw InvalidRecord{"the text has a lone surrogate or invalid UTF-8", true};
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
      return append_json_text(text_of(value, "", "a text in JSON"), out);
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

}  // namespace chat_json
}  // namespace trireme::text
