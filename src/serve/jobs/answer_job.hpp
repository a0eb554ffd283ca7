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
#include "serve/openai/replies.hpp"
#include "serve/serve_metrics.hpp"
#include "serve/served_model.hpp"

namespace trireme {

/// What all jobs of a server share.
struct JobContext {
  const ServedModel& model;
  ServeMetrics& metrics;
  double timeout_s = 600;
};

/// One HTTP request's answers, of one prompt or many: hands them to the engine, follows them, and
/// answers whole or as a stream. Lives as long as the engine or the connection holds it. All but
/// `start` runs as tasks of the reply, so nothing here needs a lock.
class AnswerJob : public std::enable_shared_from_this<AnswerJob> {
 public:
  AnswerJob(const JobContext& context, std::shared_ptr<HttpReply> reply,
            const GenerationFields& fields, const char* id_prefix);
  AnswerJob(const AnswerJob&) = delete;
  AnswerJob& operator=(const AnswerJob&) = delete;
  virtual ~AnswerJob() = default;

  /// Called once, by the handler. Throws ApiError: 400 for a request that the engine does not take
  /// (field "prompt" is told as `prompt_field`), 429 if none finds room in its queue.
  void start(std::vector<Request> requests, const std::string& prompt_field);

  void count_prompt_tokens(std::size_t count) {
    usage_.prompt_tokens += static_cast<std::int64_t>(count);
  }

 protected:
  /// What came of answer `index`. In a stream it is sent now, else kept.
  virtual void take(std::size_t index, Delta& delta) = 0;
  /// The whole, once all answers have ended.
  [[nodiscard]] virtual std::string body() = 0;
  /// Of the stream's last event but one.
  [[nodiscard]] virtual const char* chunk_object() const = 0;

  [[nodiscard]] const ServedModel& model() const noexcept { return context_.model; }

  [[nodiscard]] const ReplyHead& head() const noexcept { return head_; }

  [[nodiscard]] bool streams() const noexcept { return streams_; }

  [[nodiscard]] bool with_usage() const noexcept { return with_usage_; }

  [[nodiscard]] const TokenUsage& usage() const noexcept { return usage_; }

  void send_event(const std::string& json);
  /// Answer `index` is done, whatever the engine would still say: it ends as if it had stopped.
  void end_early(std::size_t index);

 private:
  using Clock = std::chrono::steady_clock;

  struct Part {
    RequestId id = 0;
    bool is_running = false;
    bool ends_early = false;
    std::optional<Clock::time_point> last_token;
  };

  /// As many requests as the engine takes now, one at least once one was taken; false if none is.
  bool submit_more();
  void on_delta(std::size_t index, Delta delta, Clock::time_point when);
  void measure(Part& part, std::size_t num_tokens, Clock::time_point when);
  void finish_part(Part& part);
  void fail(const ApiError& error);
  void cancel_all();

  JobContext context_;
  std::shared_ptr<HttpReply> reply_;
  ReplyHead head_;
  bool streams_;
  bool with_usage_;
  TokenUsage usage_;
  Clock::time_point begun_ = Clock::now();
  std::deque<Request> waiting_;  // not taken by the engine yet
  std::vector<Part> parts_;
  std::size_t num_started_ = 0;
  std::size_t num_done_ = 0;
  bool has_events_ = false;
  bool is_over_ = false;
};

/// The sampling settings; without a seed, a random one.
SamplingConfig sampling_of(const GenerationFields& fields);

/// The grammar that the format asks for; none: any text. ApiError(400) for a schema that has none.
std::optional<TextGrammar> grammar_of(const ResponseFormat& format);
/// Returns the grammar of a chat, whose answer may have to be calls. If the model may call a tool (auto)
/// and a tool is strict, it is the grammar of what follows an opened call.
std::optional<TextGrammar> grammar_of(const ChatRequest& request, bool several_calls);

/// The place in an answer where its grammar begins.
struct FormPlace {
  bool after_thought = false;  // the answer begins in a thought
  bool if_called = false;      // behind the words that open a call; without a call nowhere
};

/// The mask of one answer to `request`. ApiError(400) where an answer could not end.
std::shared_ptr<TokenMask> mask_of(const TextGrammar& grammar, const ServedModel& model,
                                   const Request& request, const FormPlace& place);

/// finish_reason of an answer that ended well: "stop" or "length".
const char* reply_reason(FinishReason reason);

/// Reads, checks and starts the answers of one request. Throws ApiError.
void run_chat(const JobContext& context, std::shared_ptr<HttpReply> reply,
              const ChatRequest& request);
void run_completion(const JobContext& context, std::shared_ptr<HttpReply> reply,
                    const CompletionRequest& request);

/// Returns an error as an answer, with the headers that belong to its status.
HttpAnswer error_answer(const ApiError& error);

}  // namespace trireme
