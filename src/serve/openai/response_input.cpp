#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "core/error.hpp"
#include "serve/openai/response_request.hpp"

/// Converts the input of /v1/responses to the messages of a chat.
namespace trireme::serve {
namespace {

/// Collects the messages. A call and a thought are parts of a message of the assistant.
class MessageList {
 public:
  void add(Json message) {
    if (message.at("role") == "assistant" && !thought_.empty())
      message["reasoning_content"] = std::exchange(thought_, {});
    messages_.push_back(std::move(message));
  }

  void add_thought(const std::string& text) { thought_ += text; }

  /// Adds a call to the last message of the assistant, or to a new one.
  void add_call(Json call) {
    if (messages_.empty() || messages_.back().at("role") != "assistant" || !thought_.empty())
      add({{"role", "assistant"}, {"content", nullptr}});
    calls_.insert(call.at("id"));
    messages_.back()["tool_calls"].push_back(std::move(call));
  }

  [[nodiscard]] bool has_call(const std::string& id) const { return calls_.contains(id); }

  [[nodiscard]] Json take() { return std::move(messages_); }

 private:
  Json messages_ = Json::array();
  std::string thought_;
  std::set<std::string> calls_;  // their ids
};

std::string required_text(const BodyFields& item, const char* name) {
  const auto text = item.text(name);
  if (!text) item.refuse(name, "a string");
  return *text;
}

/// Reads a content: a text, or a list of parts of one of the two types.
Json read_parts(const BodyFields& item, const char* name, const char* type, const char* other) {
  const Json* content = item.find(name);
  if (content != nullptr && content->is_string()) return *content;
  if (content == nullptr || !content->is_array()) item.refuse(name, "a string or a list of parts");
  Json parts = Json::array();
  for (std::size_t i = 0; i < content->size(); ++i) {
    const std::string where = item.name_of(formatted("{}[{}]", name, i));
    if (!(*content)[i].is_object()) refuse_field(where, where + " must be an object");
    const BodyFields part((*content)[i], where + ".");
    const auto given = part.text("type");
    if (given != type && given != other)
      part.refuse("type", std::string(type) == other ? type : formatted("{} or {}", type, other));
    parts.push_back({{"type", "text"}, {"text", required_text(part, "text")}});
    // Parts of an earlier answer have these fields. They do not change the prompt.
    for (const char* ignored : {"annotations", "logprobs"}) (void)part.find(ignored);
    part.refuse_unknown();
  }
  return parts;
}

void read_message(const BodyFields& item, MessageList& messages) {
  const auto role = item.text("role");
  if (role != "user" && role != "assistant" && role != "system" && role != "developer")
    item.refuse("role", "user, assistant, system or developer");
  (void)item.find("phase");
  messages.add(
      {{"role", *role}, {"content", read_parts(item, "content", "input_text", "output_text")}});
}

void read_call(const BodyFields& item, MessageList& messages) {
  messages.add_call(
      {{"id", required_text(item, "call_id")},
       {"type", "function"},
       {"function",
        {{"name", required_text(item, "name")}, {"arguments", required_text(item, "arguments")}}}});
}

void read_call_output(const BodyFields& item, MessageList& messages) {
  const std::string call = required_text(item, "call_id");
  if (!messages.has_call(call)) item.refuse("call_id", "the call_id of an earlier function_call");
  messages.add({{"role", "tool"},
                {"tool_call_id", call},
                {"content", read_parts(item, "output", "input_text", "input_text")}});
}

void read_reasoning(const BodyFields& item, MessageList& messages) {
  (void)item.find("summary");
  if (item.find("encrypted_content") != nullptr)
    throw ApiError(400, item.name_of("encrypted_content") + " is not supported",
                   item.name_of("encrypted_content"), "unsupported_parameter");
  if (item.find("content") == nullptr) return;
  const Json parts = read_parts(item, "content", "reasoning_text", "reasoning_text");
  if (parts.is_string()) item.refuse("content", "a list of parts");
  for (const Json& part : parts) messages.add_thought(part.at("text").get<std::string>());
}

void read_item(const BodyFields& item, MessageList& messages) {
  const std::string type = item.text("type").value_or("message");
  if (type == "message") {
    read_message(item, messages);
  } else if (type == "function_call") {
    read_call(item, messages);
  } else if (type == "function_call_output") {
    read_call_output(item, messages);
  } else if (type == "reasoning") {
    read_reasoning(item, messages);
  } else {
    item.refuse("type", "message, function_call, function_call_output or reasoning");
  }
  for (const char* ignored : {"id", "status"}) (void)item.find(ignored);
  item.refuse_unknown();
}

}  // namespace

Json response_messages(const BodyFields& fields) {
  MessageList messages;
  if (const auto instructions = fields.text("instructions"))
    messages.add({{"role", "system"}, {"content", *instructions}});
  const Json* input = fields.find("input");
  if (input == nullptr) refuse_field("input", "input is missing");
  if (input->is_string()) {
    messages.add({{"role", "user"}, {"content", *input}});
    return messages.take();
  }
  if (!input->is_array()) fields.refuse("input", "a string or a list of items");
  if (input->empty()) refuse_field("input", "input is an empty list, must have at least one item");
  for (std::size_t i = 0; i < input->size(); ++i) {
    const std::string where = formatted("input[{}]", i);
    if (!(*input)[i].is_object()) refuse_field(where, where + " must be an object");
    read_item(BodyFields((*input)[i], where + "."), messages);
  }
  return messages.take();
}

}  // namespace trireme::serve
