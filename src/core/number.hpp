#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Conversions between numbers and text that do not depend on the locale.
namespace trireme {

/// Returns the shortest text that reads back to the same bits: "3e-04", "0.1", "inf", "nan".
std::string number_text(double value);

/// Formats a rounded duration: 3723 is "1h02m", 75 is "1m15s", 7 is "7s".
std::string format_duration(double seconds);

/// Formats seconds with three digits: 0.04177 is "0.0418 s".
std::string format_seconds(double seconds);

/// Formats a size in powers of 1000: 1234567 is "1.2 MB".
std::string format_bytes(double bytes);

/// Parses all of `text` as a decimal number with an optional sign. Returns nullopt for anything
/// else, including "inf", "nan" and values that overflow or underflow a double.
std::optional<double> parse_number(std::string_view text);

/// Parses all of `text` as a 64-bit integer with an optional sign; nullopt for anything else.
std::optional<std::int64_t> parse_integer(std::string_view text);

}  // namespace trireme
