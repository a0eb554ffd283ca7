#pragma once
#include <optional>
#include <string>
#include <string_view>

namespace trireme {

/// How a text begins that stands for an odd number: JSON texts that people write never do.
inline constexpr std::string_view kOddNumber{"\0number:", 8};

/// Python's json reads numbers that simdjson does not: integers beyond 64 bits, 1e999 (infinite),
/// NaN, Infinity and -Infinity. Returns `json` with each of them as a text: kOddNumber, then the
/// number as json.dumps writes it. None if there is none, or a text begins with U+0000, so that it
/// might be taken for one. Looks at nothing else: broken JSON stays broken.
std::optional<std::string> quote_odd_numbers(std::string_view json);

}  // namespace trireme
