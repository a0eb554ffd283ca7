#include <utility>

#include "serve/jobs/answer_job.hpp"
#include "serve/openai/embedding_request.hpp"

namespace trireme::serve {
namespace {

/// Answers a request to /v1/embeddings. Answer i is the embedding of input i.
class EmbeddingJob final : public AnswerJob {
 public:
  EmbeddingJob(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
               const EmbeddingRequest& request)
      : AnswerJob(context, std::move(reply), {}, "embd-"),
        request_(request),
        vectors_(request.inputs.size()) {}

 private:
  void take(std::size_t index, generate::Delta& delta) override {
    if (delta.embedding.empty()) return;
    scale_to_unit_length(delta.embedding);
    vectors_[index] = std::move(delta.embedding);
  }

  [[nodiscard]] std::string body() override {
    return embedding_reply(request_, head().model, vectors_, usage().prompt_tokens);
  }

  [[nodiscard]] std::string last_events() override { return {}; }  // never streams

  EmbeddingRequest request_;
  std::vector<std::vector<float>> vectors_;
};

}  // namespace

void run_embedding(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
                   const EmbeddingRequest& request) {
  const auto job = std::make_shared<EmbeddingJob>(context, std::move(reply), request);
  std::vector<generate::Request> requests;
  for (const CompletionPrompt& input : request.inputs) {
    generate::Request one;
    const auto* text = std::get_if<std::string>(&input);
    one.prompt = text != nullptr ? context.model.encode(*text, "input")
                                 : std::get<std::vector<std::uint32_t>>(input);
    one.max_tokens = 0;
    one.embedding = true;
    job->count_prompt_tokens(one.prompt.size());
    requests.push_back(std::move(one));
  }
  job->start(std::move(requests), "input");
}

}  // namespace trireme::serve
