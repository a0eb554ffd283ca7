#include "core/number.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdio>

#include "core/error.hpp"

namespace trireme {
namespace {

/// Removes a leading '+', which from_chars does not accept, but not of "+-1".
std::string_view without_plus(std::string_view text) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  return text;
}

template <class T>
std::optional<T> parse_whole(std::string_view text) {
  text = without_plus(text);
  T value{};
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

}  // namespace

std::string number_text(double value) {
  char buffer[32];
  const auto [end, code] = std::to_chars(buffer, buffer + sizeof buffer, value);
  return std::string(buffer, end);
}

std::string format_duration(double seconds) {
  const auto total = static_cast<std::int64_t>(std::llround(seconds));
  const auto two = [](std::int64_t value) {
    return value < 10 ? formatted("0{}", value) : cat(value);
  };
  if (total >= 3600) return formatted("{}h{}m", total / 3600, two(total / 60 % 60));
  if (total >= 60) return formatted("{}m{}s", total / 60, two(total % 60));
  return formatted("{}s", total);
}

std::string format_seconds(double seconds) {
  char text[32];
  std::snprintf(text, sizeof text, "%.3g s", seconds);
  return text;
}

std::string format_bytes(double bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "kB", "MB", "GB", "TB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  char text[32];
  std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, kUnits[unit]);
  return text;
}

std::optional<double> parse_number(std::string_view text) {
  const auto value = parse_whole<double>(text);
  return value && std::isfinite(*value) ? value : std::nullopt;
}

std::optional<std::int64_t> parse_integer(std::string_view text) {
  return parse_whole<std::int64_t>(text);
}

}  // namespace trireme
