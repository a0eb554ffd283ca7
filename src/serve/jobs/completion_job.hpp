#pragma once
#include <memory>
#include <string>
#include <vector>

#include "serve/jobs/answer_job.hpp"
#include "serve/openai/completion_request.hpp"
#include "serve/openai/logprobs.hpp"

namespace trireme {

/// A request to /v1/completions: answers of prompt p are the choices p * n to p * n + n - 1.
class CompletionJob final : public AnswerJob {
 public:
  /// Reads, checks and starts it. Throws ApiError.
  static void run(const JobContext& context, std::shared_ptr<HttpReply> reply,
                  const CompletionRequest& request);

  /// `prompts`: their texts.
  CompletionJob(const JobContext& context, std::shared_ptr<HttpReply> reply,
                const CompletionRequest& request, const std::vector<std::string>& prompts);

 private:
  struct Choice {
    std::string text;  // all of it; of a stream, what is not sent yet
    std::vector<TokenReport> tokens;
    CompletionLogprobs logprobs;
    std::string finish_reason = {};
  };

  void take(std::size_t index, Delta& delta) override;
  [[nodiscard]] CompletionChoice told(std::size_t index, Choice& choice) const;
  [[nodiscard]] std::string body() override;

  [[nodiscard]] const char* chunk_object() const override { return "text_completion"; }

  bool with_logprobs_;
  std::vector<Choice> choices_;
};

}  // namespace trireme
