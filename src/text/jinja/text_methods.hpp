#pragma once
#include <cstdint>
#include <string_view>

#include "text/jinja/value.hpp"

/// Operations of Python on texts, which keep the marks of each byte.
namespace trireme::text::jinja {

/// The white space of ASCII that str.strip() removes. text_stripped also removes that of Unicode.
inline constexpr std::string_view kTextBlanks = " \t\n\r\f\v\x1c\x1d\x1e\x1f";

MarkedText text_stripped(const MarkedText& text, bool left, bool right);
/// Splits at the line ends of str.splitlines(): also U+0085, U+2028 and others.
JinjaList text_lines(const MarkedText& text);
/// Splits at runs of white space.
JinjaList text_words(const MarkedText& text);
/// `limit`: the maximum number of splits; -1: no maximum. Throws JinjaFailure if `separator` is
/// empty.
JinjaList text_split(const MarkedText& text, std::string_view separator, std::int64_t limit,
                     bool from_right);
MarkedText text_replaced(const MarkedText& text, std::string_view from, const MarkedText& to,
                         std::int64_t limit);
MarkedText text_joined(const JinjaList& items, const MarkedText& separator);
/// Returns the position in characters, or -1.
std::int64_t text_position(const MarkedText& text, std::string_view part, bool from_right);

enum class LetterCase {
  lower,
  upper,
  capitalized,
  title,  // str.title(): "Foo_Bar", "It'S"
  words,  // filter `title` of Jinja2: "Foo_bar", "It's"
};

/// Changes the case of ASCII letters. Throws JinjaFailure for other letters.
MarkedText text_recased(const MarkedText& text, LetterCase letters);

}  // namespace trireme::text::jinja
