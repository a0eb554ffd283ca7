#pragma once
#include <string_view>

namespace trireme {

/// Says which of the three standard streams are terminals.
struct Terminals {
  bool input = false;
  bool output = false;
  bool errors = false;
};

Terminals terminals() noexcept;

/// Selects UTF-8 for functions that count columns: the user's locale, or C.UTF-8 if that has
/// another encoding. Number formats do not change. Returns false if the system has neither.
bool use_utf8_locale() noexcept;

/// Returns true if standard output is a terminal without NO_COLOR or TERM=dumb.
bool may_use_colors() noexcept;

/// Resets the style at the end of dimmed text.
inline constexpr std::string_view kDim = "\x1b[2m";
inline constexpr std::string_view kPlain = "\x1b[0m";
/// Moves to the start of the line and clears it.
inline constexpr std::string_view kClearLine = "\r\x1b[2K";

}  // namespace trireme
