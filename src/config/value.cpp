#include "config/value.hpp"

#include <array>
#include <cstdint>
#include <type_traits>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme::config {
namespace {

/// Returns the number of bytes of the UTF-8 sequence at the start of `text`; 0 if it is invalid
/// (RFC 3629: no surrogates, no overlong forms).
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xC0U) == 0x80U; };
  const unsigned first = byte(0);
  if (first < 0x80U) return 1;
  if (first >= 0xC2U && first <= 0xDFU) return tail(1) ? 2 : 0;
  if ((first & 0xF0U) == 0xE0U) {
    const bool overlong = first == 0xE0U && byte(1) < 0xA0U;
    const bool surrogate = first == 0xEDU && byte(1) > 0x9FU;
    return tail(1) && tail(2) && !overlong && !surrogate ? 3 : 0;
  }
  if (first < 0xF0U || first > 0xF4U) return 0;
  const bool outside = (first == 0xF0U && byte(1) < 0x90U) || (first == 0xF4U && byte(1) > 0x8FU);
  return tail(1) && tail(2) && tail(3) && !outside ? 4 : 0;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string assign(bool& target, std::string_view text) {
  if (text != "true" && text != "false") return "must be true or false";
  target = text == "true";
  return "";
}

std::string assign(std::int64_t& target, std::string_view text) {
  const auto value = parse_integer(text);
  if (!value) return "must be an integer, in plain digits, of at most 64 bits";
  target = *value;
  return "";
}

std::string assign(double& target, std::string_view text) {
  const auto value = parse_number(text);
  if (!value) return "must be a finite number, such as 3e-4";
  target = *value;
  return "";
}

std::string assign(std::string& target, std::string_view text) {
  if (!is_utf8(text)) return "must be valid UTF-8";
  target = text;
  return "";
}

std::string assign(std::vector<std::string>& target, std::string_view text) {
  if (!is_utf8(text)) return "must be valid UTF-8";
  target = {std::string(text)};
  return "";
}

std::string toml_quoted(const std::string& text) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string result = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      result += '\\';
      result += c;
    } else if (byte < 0x20U || byte == 0x7FU) {
      result += "\\u00";
      result += kDigits[byte >> 4];
      result += kDigits[byte & 15U];
    } else {
      result += c;
    }
  }
  return result + '"';
}

template <class T>
std::string plain(const T& value) {
  if constexpr (std::is_same_v<T, bool>) return value ? "true" : "false";
  if constexpr (std::is_same_v<T, std::int64_t>) return std::to_string(value);
  if constexpr (std::is_same_v<T, double>) return number_text(value);
  if constexpr (std::is_same_v<T, std::string>) return value;
  if constexpr (std::is_same_v<T, std::vector<std::string>>) return joined(value, " ");
}

template <class T>
std::string literal(const T& value) {
  if constexpr (std::is_same_v<T, std::string>) return toml_quoted(value);
  if constexpr (std::is_same_v<T, std::vector<std::string>>)
    return formatted("[{}]", joined(value, ", ", toml_quoted));
  const std::string text = plain(value);
  const bool lacks_point = text.find_first_of(".en") == std::string::npos;
  return std::is_same_v<T, double> && lacks_point ? text + ".0" : text;
}

constexpr std::array<std::string_view, 5> kPlaceholders{"BOOL", "INT", "NUMBER", "TEXT", "TEXT..."};

}  // namespace

std::string_view value_placeholder(const FieldPointer& field) {
  return kPlaceholders.at(field.index());
}

std::string assign_text(const FieldPointer& field, std::string_view text) {
  return std::visit([&](auto* target) { return assign(*target, text); }, field);
}

void assign_field(const FieldPointer& field, const FieldPointer& from) {
  TRIREME_ASSERT(field.index() == from.index());
  std::visit([&](auto* target) { *target = *std::get<decltype(target)>(from); }, field);
}

std::string value_text(const FieldPointer& field) {
  return std::visit([](const auto* value) { return plain(*value); }, field);
}

std::string value_toml(const FieldPointer& field) {
  return std::visit([](const auto* value) { return literal(*value); }, field);
}

}  // namespace trireme::config
