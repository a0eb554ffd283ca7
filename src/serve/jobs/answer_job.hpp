#pragma once
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http/http_message.hpp"
#include "serve/grammar/answer_grammar.hpp"
#include "serve/openai/api_error.hpp"
#include "serve/openai/chat_request.hpp"
#include "serve/openai/completion_request.hpp"
#include "serve/openai/embedding_request.hpp"
#include "serve/openai/replies.hpp"
#include "serve/openai/response_request.hpp"
#include "serve/serve_metrics.hpp"
#include "serve/served_model.hpp"

namespace trireme::serve {

struct JobContext {
  const ServedModel& model;
  ServeMetrics& metrics;
  double timeout_s = 600;
};

/// Produces the answers to one HTTP request, which has one or more prompts. A job submits the
/// prompts to the engine, collects the output, and responds with one body or with a stream. The
/// engine and the connection keep the job alive. All functions except `start` run as tasks of the
/// reply (one after another), so no lock is needed.
class AnswerJob : public std::enable_shared_from_this<AnswerJob> {
 public:
  AnswerJob(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
            const GenerationFields& fields, const char* id_prefix);
  AnswerJob(const AnswerJob&) = delete;
  AnswerJob& operator=(const AnswerJob&) = delete;
  virtual ~AnswerJob() = default;

  /// Starts the job; the handler calls this once. Throws ApiError: 400 if the engine refuses a
  /// request, 429 if the queue of the engine is full. If the engine names the field "prompt", the
  /// error names `prompt_field` instead.
  void start(std::vector<generate::Request> requests, const std::string& prompt_field);

  void count_prompt_tokens(std::size_t count) {
    usage_.prompt_tokens += static_cast<std::int64_t>(count);
  }

 protected:
  /// Handles new output of answer `index`: sends it if the job streams, otherwise stores it.
  virtual void take(std::size_t index, generate::Delta& delta) = 0;
  /// Returns the complete response body after all answers have ended.
  [[nodiscard]] virtual std::string body() = 0;
  /// Returns the events at the end of a stream after all answers have ended.
  [[nodiscard]] virtual std::string last_events() = 0;
  /// Returns the events at the end of a stream that an error ends.
  [[nodiscard]] virtual std::string error_events(const ApiError& error);

  [[nodiscard]] const ServedModel& model() const noexcept { return context_.model; }

  [[nodiscard]] const ReplyHead& head() const noexcept { return head_; }

  [[nodiscard]] bool streams() const noexcept { return streams_; }

  [[nodiscard]] bool with_usage() const noexcept { return with_usage_; }

  [[nodiscard]] const TokenUsage& usage() const noexcept { return usage_; }

  void count_thought_tokens(std::size_t count) {
    usage_.thought_tokens += static_cast<std::int64_t>(count);
  }

  /// Sends the bytes of one or more events.
  void send_events(std::string bytes);

  void send_event(const std::string& json) { send_events(sse_event(json)); }

  /// Returns the last events of OpenAI's older APIs: the usage if the request wants it, and [DONE].
  /// `object` is the "object" member of the usage event.
  [[nodiscard]] std::string usage_and_done(const char* object) const;
  /// Ends answer `index` with finish reason stop and ignores further output of the engine.
  void end_early(std::size_t index);

 private:
  using Clock = std::chrono::steady_clock;

  struct Part {
    generate::RequestId id = 0;
    bool is_running = false;
    bool ends_early = false;
    bool counts_prompt = true;  // false: an answer before it has the same prompt
    std::optional<Clock::time_point> last_token{};
  };

  /// Submits waiting requests until the engine accepts no more. Returns false only if the engine
  /// has not accepted any request of this job.
  bool submit_more();
  void on_delta(std::size_t index, generate::Delta delta, Clock::time_point when);
  void measure(Part& part, std::size_t num_tokens, Clock::time_point when);
  void finish_part(Part& part);
  void fail(const ApiError& error);
  void cancel_all();

  JobContext context_;
  std::shared_ptr<http::HttpReply> reply_;
  ReplyHead head_;
  bool streams_;
  bool with_usage_;
  TokenUsage usage_;
  Clock::time_point begun_ = Clock::now();
  std::deque<generate::Request> waiting_;  // not accepted by the engine yet
  std::vector<Part> parts_;
  std::size_t num_started_ = 0;
  std::size_t num_done_ = 0;
  bool has_events_ = false;
  bool is_over_ = false;
};

/// Returns the sampling settings of the request. Without a seed, the seed is random.
generate::SamplingConfig sampling_of(const GenerationFields& fields);

/// Returns the grammar of the response format; none if any text is allowed. Throws ApiError(400) if
/// the schema has no grammar.
std::optional<TextGrammar> grammar_of(const ResponseFormat& format);
/// Returns the grammar of a chat answer; none if any text is allowed. If tool_choice is required,
/// the answer must consist of calls. If tool_choice is auto and a tool is strict, the grammar
/// describes the text after the opening marker of a call.
std::optional<TextGrammar> grammar_of(const ChatRequest& request, bool several_calls);

/// The position in an answer at which its grammar begins.
struct GrammarPosition {
  bool after_thought = false;  // the answer begins inside a thought
  // the grammar begins after the opening marker of a call; if there is no call, it is not used
  bool if_called = false;
};

/// Returns the token mask of one answer to `request`. Throws ApiError(400) if the answer could
/// never end: with ignore_eos, or if the model has no end token.
std::shared_ptr<generate::TokenMask> mask_of(const TextGrammar& grammar, const ServedModel& model,
                                             const generate::Request& request,
                                             const GrammarPosition& place);

/// Returns the finish_reason of an answer without error: "stop" or "length".
const char* reply_reason(generate::FinishReason reason);

/// Check one request and start its answers. Throw ApiError.
void run_chat(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
              const ChatRequest& request);
void run_completion(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
                    const CompletionRequest& request);
void run_embedding(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
                   const EmbeddingRequest& request);
void run_response(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
                  const ResponseRequest& request);

/// Returns the HTTP response for an error, with the headers that its status requires.
http::HttpResponse error_answer(const ApiError& error);

}  // namespace trireme::serve
