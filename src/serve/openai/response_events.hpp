#pragma once
#include <cstdint>
#include <string>
#include <string_view>

#include "core/files/json.hpp"
#include "serve/openai/replies.hpp"

namespace trireme::serve {

/// Builds a response object of /v1/responses while the answer is generated, and the events of a
/// stream. Each function that returns events numbers them; a job that does not stream drops them.
/// Source: OpenAI's API reference, "Streaming events" of the Responses API.
class ResponseWriter {
 public:
  /// `repeated`: members of the response that repeat the request.
  ResponseWriter(ReplyHead head, Json repeated);

  /// Returns response.created and response.in_progress.
  std::string begin();
  /// Adds a part of the answer. Returns its events.
  std::string add(const AnswerDelta& part);
  /// Ends the response. Returns its last events. `is_cut`: the limit of tokens ended the answer.
  std::string end(bool is_cut, const TokenUsage& usage);
  /// Returns response.failed.
  std::string fail(std::string_view message);

  /// Returns the response object in JSON.
  [[nodiscard]] std::string body() const;

 private:
  enum class Open { nothing, thought, message };

  [[nodiscard]] Json response() const;
  /// Returns an event with the next sequence number.
  std::string event(const char* type, Json members);
  /// Returns an event of the last item. `part`: it also names its part of the content.
  std::string item_event(const char* type, Json members, bool part = true);
  std::string open(Open kind);
  std::string add_text(Open kind, const std::string& text);
  std::string add_call(const AnswerCall& call);
  std::string close(const char* status);

  ReplyHead head_;
  Json repeated_;
  Json output_ = Json::array();
  Json usage_;
  std::string status_ = "in_progress";
  std::string error_;
  Open open_ = Open::nothing;
  std::int64_t next_number_ = 0;
};

}  // namespace trireme::serve
