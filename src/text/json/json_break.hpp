#pragma once
#include <string>
#include <string_view>

namespace trireme {

/// Returns the place where `json` stops being JSON, for the end of a message: " (at byte 37,
/// near '\"user\" \"content\":')". Returns "" if the JSON is valid, or only its numbers or its UTF-8 are not.
std::string json_break(std::string_view json);

/// Returns that place for a record that is one line of a file. If the line is valid JSON but for a comma at
/// its end, as in a JSON array without its brackets, the text says so and how to remove it.
std::string record_break(std::string_view line);

}  // namespace trireme
