#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "core/files/json.hpp"

namespace trireme {

/// Calls with each line of `content` that is not blank, and with its place, "NAME:3".
void for_each_line(std::string_view content, std::string_view name,
                   const std::function<void(std::string_view, const std::string&)>& call);

/// Calls with the value of each line of `content` that is not blank, and with its place, "NAME:3".
/// Throws Error(data) as parse_json.
void for_each_json_line(std::string_view content, std::string_view name,
                        const std::function<void(const Json&, const std::string&)>& call);

/// Returns `value` as JSON without line ends. Bytes that are no UTF-8 become U+FFFD, numbers that are
/// not finite null.
std::string json_text(const Json& value);

/// Returns json_text with a line end: what `--json` prints, one document a command or, of a stream, one
/// a line (JSON Lines).
std::string json_line(const Json& value);

}  // namespace trireme
