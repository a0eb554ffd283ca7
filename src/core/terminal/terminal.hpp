#pragma once
#include <string_view>

namespace trireme {

/// Whether a person types what we read, and sees what we print.
struct Terminals {
  bool input = false;
  bool output = false;
  bool errors = false;
};

Terminals terminals() noexcept;

/// Characters are UTF-8 from here on, for what counts their columns: the user's locale, or C.UTF-8
/// where that has another encoding. Numbers stay as they are. False: the system has neither.
bool use_utf8_locale() noexcept;

/// Whether colours may be used on standard output: a terminal, and no NO_COLOR or TERM=dumb.
bool may_use_colours() noexcept;

/// Ends a line of text that may be dimmed.
inline constexpr std::string_view kDim = "\x1b[2m";
inline constexpr std::string_view kPlain = "\x1b[0m";
/// To the beginning of the line, which becomes empty.
inline constexpr std::string_view kClearLine = "\r\x1b[2K";

}  // namespace trireme
