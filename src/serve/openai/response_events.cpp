#include "serve/openai/response_events.hpp"

#include <nlohmann/json.hpp>
#include <utility>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"

namespace trireme::serve {
namespace {

Json text_part(bool is_thought) {
  if (is_thought) return {{"type", "reasoning_text"}, {"text", ""}};
  return {{"type", "output_text"},
          {"text", ""},
          {"annotations", Json::array()},
          {"logprobs", Json::array()}};
}

}  // namespace

ResponseWriter::ResponseWriter(ReplyHead head, Json repeated)
    : head_(std::move(head)), repeated_(std::move(repeated)) {}

Json ResponseWriter::response() const {
  Json response{{"id", head_.id},       {"object", "response"}, {"created_at", head_.created},
                {"model", head_.model}, {"status", status_},    {"output", output_},
                {"usage", usage_},      {"error", nullptr},     {"incomplete_details", nullptr}};
  response.update(repeated_);
  if (status_ == "failed") response["error"] = {{"code", "server_error"}, {"message", error_}};
  if (status_ == "incomplete") response["incomplete_details"] = {{"reason", "max_output_tokens"}};
  return response;
}

std::string ResponseWriter::body() const {
  return json_text(response());
}

std::string ResponseWriter::event(const char* type, Json members) {
  members["type"] = type;
  members["sequence_number"] = next_number_++;
  return formatted("event: {}\ndata: {}\n\n", type, json_text(members));
}

std::string ResponseWriter::item_event(const char* type, Json members, bool part) {
  members["item_id"] = output_.back().at("id");
  members["output_index"] = output_.size() - 1;
  if (part) members["content_index"] = 0;
  return event(type, std::move(members));
}

std::string ResponseWriter::begin() {
  std::string events = event("response.created", {{"response", response()}});
  return events += event("response.in_progress", {{"response", response()}});
}

std::string ResponseWriter::open(Open kind) {
  if (open_ == kind) return {};
  std::string events = close("completed");
  open_ = kind;
  const bool is_thought = kind == Open::thought;
  Json item{{"id", random_id(is_thought ? "rs_" : "msg_")},
            {"type", is_thought ? "reasoning" : "message"},
            {"status", "in_progress"},
            {"content", Json::array()}};
  if (is_thought) {
    item["summary"] = Json::array();
  } else {
    item["role"] = "assistant";
  }
  output_.push_back(item);
  events += event("response.output_item.added",
                  {{"output_index", output_.size() - 1}, {"item", std::move(item)}});
  output_.back()["content"].push_back(text_part(is_thought));
  return events += item_event("response.content_part.added", {{"part", text_part(is_thought)}});
}

std::string ResponseWriter::add_text(Open kind, const std::string& text) {
  if (text.empty()) return {};
  std::string events = open(kind);
  output_.back()["content"][0]["text"].get_ref<std::string&>() += text;
  if (kind == Open::thought)
    return events += item_event("response.reasoning_text.delta", {{"delta", text}});
  return events +=
         item_event("response.output_text.delta", {{"delta", text}, {"logprobs", Json::array()}});
}

std::string ResponseWriter::add_call(const AnswerCall& call) {
  std::string events = close("completed");
  Json item{{"id", random_id("fc_")}, {"type", "function_call"}, {"call_id", call.id},
            {"name", call.name},      {"arguments", ""},         {"status", "in_progress"}};
  output_.push_back(item);
  const std::size_t index = output_.size() - 1;
  events += event("response.output_item.added", {{"output_index", index}, {"item", item}});
  events +=
      item_event("response.function_call_arguments.delta", {{"delta", call.arguments}}, false);
  events += item_event("response.function_call_arguments.done",
                       {{"name", call.name}, {"arguments", call.arguments}}, false);
  output_.back()["arguments"] = call.arguments;
  output_.back()["status"] = "completed";
  return events +=
         event("response.output_item.done", {{"output_index", index}, {"item", output_.back()}});
}

std::string ResponseWriter::close(const char* status) {
  const Open kind = std::exchange(open_, Open::nothing);
  if (kind == Open::nothing) return {};
  output_.back()["status"] = status;
  const Json part = output_.back().at("content").at(0);
  std::string events;
  if (kind == Open::thought) {
    events += item_event("response.reasoning_text.done", {{"text", part.at("text")}});
  } else {
    events += item_event("response.output_text.done",
                         {{"text", part.at("text")}, {"logprobs", Json::array()}});
  }
  events += item_event("response.content_part.done", {{"part", part}});
  return events += event("response.output_item.done",
                         {{"output_index", output_.size() - 1}, {"item", output_.back()}});
}

std::string ResponseWriter::add(const AnswerDelta& part) {
  std::string events = add_text(Open::thought, part.thought);
  events += add_text(Open::message, part.content);
  for (const AnswerCall& call : part.calls) events += add_call(call);
  return events;
}

std::string ResponseWriter::end(bool is_cut, const TokenUsage& usage) {
  std::string events;
  if (output_.empty()) events += open(Open::message);  // an answer without text
  status_ = is_cut ? "incomplete" : "completed";
  events += close(status_.c_str());
  usage_ = {{"input_tokens", usage.prompt_tokens},
            {"input_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
            {"output_tokens", usage.completion_tokens},
            {"output_tokens_details", {{"reasoning_tokens", usage.thought_tokens}}},
            {"total_tokens", usage.prompt_tokens + usage.completion_tokens}};
  return events +=
         event(is_cut ? "response.incomplete" : "response.completed", {{"response", response()}});
}

std::string ResponseWriter::fail(std::string_view message) {
  status_ = "failed";
  error_ = message;
  return event("response.failed", {{"response", response()}});
}

}  // namespace trireme::serve
