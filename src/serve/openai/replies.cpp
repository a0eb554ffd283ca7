#include "serve/openai/replies.hpp"

#include <nlohmann/json.hpp>

#include "core/files/json_lines.hpp"

namespace trireme::serve {
namespace {

Json opened(const ReplyHead& head, const char* object) {
  return {{"id", head.id},
          {"object", object},
          {"created", head.created},
          {"model", head.model},
          {"system_fingerprint", head.fingerprint},
          {"choices", Json::array()}};
}

Json usage_json(const TokenUsage& usage) {
  return {{"prompt_tokens", usage.prompt_tokens},
          {"completion_tokens", usage.completion_tokens},
          {"total_tokens", usage.prompt_tokens + usage.completion_tokens},
          {"prompt_tokens_details", {{"cached_tokens", usage.cached_tokens}}},
          {"completion_tokens_details", {{"reasoning_tokens", usage.thought_tokens}}}};
}

Json parsed_or_null(const std::string& json) {
  return json.empty() ? Json() : Json::parse(json);
}

Json reason_or_null(const std::string& reason) {
  return reason.empty() ? Json() : Json(reason);
}

Json calls_json(const std::vector<AnswerCall>& calls) {
  Json list = Json::array();
  for (const AnswerCall& call : calls) {
    list.push_back({{"id", call.id},
                    {"type", "function"},
                    {"function", {{"name", call.name}, {"arguments", call.arguments}}}});
  }
  return list;
}

Json message_json(const AnswerDelta& answer) {
  Json message{{"role", "assistant"}, {"content", answer.content}, {"refusal", nullptr}};
  if (answer.content.empty() && !answer.calls.empty()) message["content"] = nullptr;
  if (!answer.thought.empty()) message["reasoning_content"] = answer.thought;
  if (!answer.calls.empty()) message["tool_calls"] = calls_json(answer.calls);
  return message;
}

Json delta_json(const ChatDelta& delta) {
  Json json = Json::object();
  if (delta.is_first) json["role"] = "assistant";
  if (!delta.answer.thought.empty()) json["reasoning_content"] = delta.answer.thought;
  if (!delta.answer.content.empty() || (delta.is_first && delta.answer.empty()))
    json["content"] = delta.answer.content;
  if (!delta.answer.calls.empty()) {
    Json calls = calls_json(delta.answer.calls);
    for (std::size_t i = 0; i < calls.size(); ++i)
      calls[i]["index"] = delta.num_calls_before + static_cast<std::int64_t>(i);
    json["tool_calls"] = std::move(calls);
  }
  return json;
}

Json text_choice_json(const CompletionChoice& choice) {
  return {{"index", choice.index},
          {"text", choice.text},
          {"logprobs", parsed_or_null(choice.logprobs)},
          {"finish_reason", reason_or_null(choice.finish_reason)}};
}

}  // namespace

std::string chat_reply(const ReplyHead& head, const std::vector<ChatChoice>& choices,
                       const TokenUsage& usage) {
  Json reply = opened(head, "chat.completion");
  for (const ChatChoice& choice : choices) {
    reply["choices"].push_back({{"index", choice.index},
                                {"message", message_json(choice.answer)},
                                {"logprobs", parsed_or_null(choice.logprobs)},
                                {"finish_reason", reason_or_null(choice.finish_reason)}});
  }
  reply["usage"] = usage_json(usage);
  return json_text(reply);
}

std::string completion_reply(const ReplyHead& head, const std::vector<CompletionChoice>& choices,
                             const TokenUsage& usage) {
  Json reply = opened(head, "text_completion");
  for (const CompletionChoice& choice : choices)
    reply["choices"].push_back(text_choice_json(choice));
  reply["usage"] = usage_json(usage);
  return json_text(reply);
}

std::string chat_chunk(const ReplyHead& head, const ChatDelta& delta, bool with_usage) {
  Json chunk = opened(head, "chat.completion.chunk");
  chunk["choices"].push_back({{"index", delta.index},
                              {"delta", delta_json(delta)},
                              {"logprobs", parsed_or_null(delta.logprobs)},
                              {"finish_reason", reason_or_null(delta.finish_reason)}});
  if (with_usage) chunk["usage"] = nullptr;
  return json_text(chunk);
}

std::string completion_chunk(const ReplyHead& head, const CompletionChoice& choice,
                             bool with_usage) {
  Json chunk = opened(head, "text_completion");
  chunk["choices"].push_back(text_choice_json(choice));
  if (with_usage) chunk["usage"] = nullptr;
  return json_text(chunk);
}

std::string usage_chunk(const ReplyHead& head, const char* object, const TokenUsage& usage) {
  Json chunk = opened(head, object);
  chunk["usage"] = usage_json(usage);
  return json_text(chunk);
}

std::string sse_event(std::string_view json) {
  std::string event("data: ");
  return event.append(json).append("\n\n");
}

}  // namespace trireme::serve
