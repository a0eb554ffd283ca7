#pragma once
#include <string_view>
#include <vector>

#include "core/files/json.hpp"

/// Calls of tools in the text of an answer, in the form of Qwen and MiniMind.
namespace trireme::reward {

/// Returns the JSON values between "<tool_call>" and "</tool_call>", in order. Text that is not
/// JSON, or is deeper than 64 or longer than 1 MiB, is no call.
std::vector<Json> parse_tool_calls(std::string_view text);

/// Returns the arguments of a call; a string is parsed as JSON. Returns an empty object if there
/// are none or they are not an object.
Json call_arguments(const Json& call);

}  // namespace trireme::reward
