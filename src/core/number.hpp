#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

/// Numbers as text and back, the same in every locale.
namespace trireme {

/// The shortest text that reads back to the same bits: "3e-04", "0.1", "100".
/// Also "inf", "-inf", "nan".
std::string number_text(double value);

/// Seconds for people, rounded: 3723 -> "1h02m"; 75 -> "1m15s"; 7 -> "7s".
std::string format_duration(double seconds);

/// Seconds to three digits: 0.04177 -> "0.0418 s".
std::string format_seconds(double seconds);

/// A size for people, in powers of 1000: 1234567 -> "1.2 MB".
std::string format_bytes(double bytes);

/// The whole of `text` as a decimal number, with an optional sign; nullopt for anything else,
/// "inf", "nan" and what overflows or underflows a double.
std::optional<double> parse_number(std::string_view text);

/// The whole of `text` as a decimal integer of 64 bits, with an optional sign;
/// nullopt for anything else.
std::optional<std::int64_t> parse_integer(std::string_view text);

}  // namespace trireme
