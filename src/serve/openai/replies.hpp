#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/json.hpp"
#include "serve/tools/answer_parser.hpp"

/// The bodies of answers, in the form of OpenAI's API. Text comes back as U+FFFD where it is no UTF-8.
namespace trireme {

/// What all parts of one answer have in common.
struct ReplyHead {
  std::string id;            // "chatcmpl-..."
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;
};

struct TokenUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
};

/// One finished answer of a chat.
struct ChatChoice {
  std::int64_t index = 0;
  AnswerPiece answer;
  std::string logprobs;  // JSON; "" for null
  std::string finish_reason;
};

/// One finished text of a completion.
struct CompletionChoice {
  std::int64_t index = 0;
  std::string text;
  std::string logprobs;
  std::string finish_reason;
};

std::string chat_reply(const ReplyHead& head, const std::vector<ChatChoice>& choices,
                       const TokenUsage& usage);
std::string completion_reply(const ReplyHead& head, const std::vector<CompletionChoice>& choices,
                             const TokenUsage& usage);

/// What one event of a stream says of one choice.
struct ChatDelta {
  std::int64_t index = 0;
  bool is_first = false;  // carries the role
  AnswerPiece piece = {};
  std::int64_t num_calls_before = 0;  // of this answer
  std::string logprobs = {};
  std::string finish_reason = {};
};

/// `with_usage`: the stream will end with an event of usage, till then "usage" is null.
std::string chat_chunk(const ReplyHead& head, const ChatDelta& delta, bool with_usage);
std::string completion_chunk(const ReplyHead& head, const CompletionChoice& choice,
                             bool with_usage);
/// The event with no choices. `object` is "chat.completion.chunk" or "text_completion".
std::string usage_chunk(const ReplyHead& head, const char* object, const TokenUsage& usage);

/// "data: <json>\n\n".
std::string sse_event(std::string_view json);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace trireme
