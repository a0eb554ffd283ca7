#pragma once
#include <functional>
#include <string>
#include <string_view>

#include "core/files/json.hpp"

namespace trireme {

/// Calls `call` for each non-blank line of `content`, with the line's place, "NAME:3".
void for_each_line(std::string_view content, std::string_view name,
                   const std::function<void(std::string_view, const std::string&)>& call);

/// Like for_each_line(), with the parsed JSON value. Throws Error(data) like parse_json().
void for_each_json_line(std::string_view content, std::string_view name,
                        const std::function<void(const Json&, const std::string&)>& call);

/// Returns `value` as JSON without line breaks. Bytes that are not UTF-8 become U+FFFD, numbers
/// that are not finite become null.
std::string json_text(const Json& value);

/// Returns json_text() with a line end, as printed by `--json` once or as a stream.
std::string json_line(const Json& value);

}  // namespace trireme
