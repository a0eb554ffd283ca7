#pragma once
#include <string>
#include <string_view>

namespace trireme::text {

/// Returns the position where `json` stops being valid, as end of a message: " (at byte 37, near
/// '\"user\" \"content\":')". Returns "" if the JSON is valid, or if only numbers or UTF-8 are
/// invalid.
std::string json_break(std::string_view json);

/// Like json_break for a record on one line of a file. If the line is valid except for a comma at
/// its end, as in a JSON array, the text explains how to remove the comma.
std::string record_break(std::string_view line);

}  // namespace trireme::text
