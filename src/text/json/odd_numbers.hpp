#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace trireme::text {

/// Prefix of a string that stands for an odd number. Real JSON strings do not begin like this.
inline constexpr std::string_view kOddNumber{"\0number:", 8};

/// Quotes odd numbers, which Python's json reads but simdjson does not: integers beyond 64 bits,
/// 1e999 (infinite), NaN, Infinity and -Infinity. Each becomes a string: kOddNumber, then the
/// number as json.dumps writes it. Returns none if there is no odd number, or if a string begins
/// with U+0000 and could be mistaken for one. Invalid JSON stays invalid.
std::optional<std::string> quote_odd_numbers(std::string_view json);

}  // namespace trireme::text
