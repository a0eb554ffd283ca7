#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/files/json.hpp"
#include "serve/tools/answer_parser.hpp"

/// Response bodies in the form of OpenAI's API. Invalid UTF-8 becomes U+FFFD.
namespace trireme::serve {
struct ReplyHead {
  std::string id;            // "chatcmpl-..."
  std::int64_t created = 0;  // seconds since 1970
  std::string model;
  std::string fingerprint;
};

struct TokenUsage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t cached_tokens = 0;   // prompt tokens in cached blocks
  std::int64_t thought_tokens = 0;  // tokens of thoughts in completion_tokens
};

struct ChatChoice {
  std::int64_t index = 0;
  AnswerDelta answer;
  std::string logprobs;  // JSON; empty for null
  std::string finish_reason;
};

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

/// The part of one choice that one event of a stream contains.
struct ChatDelta {
  std::int64_t index = 0;
  bool is_first = false;  // the event contains the role
  AnswerDelta answer = {};
  std::int64_t num_calls_before = 0;  // calls of this answer in earlier events
  std::string logprobs = {};
  std::string finish_reason = {};
};

/// `with_usage` means that the stream ends with a usage event; then "usage" is null in all earlier
/// events.
std::string chat_chunk(const ReplyHead& head, const ChatDelta& delta, bool with_usage);
std::string completion_chunk(const ReplyHead& head, const CompletionChoice& choice,
                             bool with_usage);
/// Returns the usage event, which has no choices. `object` is "chat.completion.chunk" or
/// "text_completion".
std::string usage_chunk(const ReplyHead& head, const char* object, const TokenUsage& usage);

/// Returns "data: <json>\n\n".
std::string sse_event(std::string_view json);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";

}  // namespace trireme::serve
