#pragma once
#include <memory>
#include <string>
#include <vector>

#include "serve/jobs/answer_job.hpp"
#include "serve/openai/chat_request.hpp"
#include "serve/tools/answer_parser.hpp"

namespace trireme {

/// A request to /v1/chat/completions.
class ChatJob final : public AnswerJob {
 public:
  /// Reads, checks and starts it. Throws ApiError.
  static void run(const JobContext& context, std::shared_ptr<HttpReply> reply,
                  const ChatRequest& request);

  ChatJob(const JobContext& context, std::shared_ptr<HttpReply> reply, const ChatRequest& request,
          const AnswerForm& form);

 private:
  struct Choice {
    AnswerParser parser;
    AnswerPiece answer;               // all of it, unless it is streamed
    std::vector<TokenReport> tokens;  // the same
    std::int64_t num_calls = 0;       // that were handed out
    bool has_role = false;
    std::string finish_reason = {};
  };

  void take(std::size_t index, Delta& delta) override;
  void send(std::size_t index, Choice& choice, AnswerPiece piece, const Delta& delta);
  [[nodiscard]] std::string body() override;

  [[nodiscard]] const char* chunk_object() const override { return "chat.completion.chunk"; }

  bool with_logprobs_;
  std::vector<Choice> choices_;
};

}  // namespace trireme
