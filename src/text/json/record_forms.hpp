#pragma once
#include <string>
#include <string_view>

#include "text/json/json_fields.hpp"

namespace trireme::chat_json {

/// The record form that a message asks for in its advice.
inline constexpr std::string_view kMessagesForm =
    R"({"messages": [{"role": "user", "content": ".."}, {"role": "assistant", "content": ".."}]})";

/// Says which known form `record` has, if it lacks the fields that `pack --kind KIND` reads, and
/// what to do about it, for the end of a message: "; it is a conversation ('messages'), which
/// --kind sft packs". Returns "" for a form that nobody knows.
std::string describe_record_form(const object& record, std::string_view kind);

/// Says what a message without a role is: "" or "; 'from' and 'value' are ShareGPT's names ...".
std::string describe_message_form(const object& message);

/// Advice for a role that a chat does not have: "" or "; ShareGPT's human is user ...".
std::string describe_foreign_role(std::string_view role);

}  // namespace trireme::chat_json
