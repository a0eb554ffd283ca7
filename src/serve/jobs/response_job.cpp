#include <utility>

#include "serve/jobs/answer_job.hpp"
#include "serve/jobs/chat_plan.hpp"
#include "serve/openai/response_events.hpp"

namespace trireme::serve {
namespace {

/// Answers a request to /v1/responses.
class ResponseJob final : public AnswerJob {
 public:
  ResponseJob(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
              const ResponseRequest& request, const AnswerForm& form)
      : AnswerJob(context, std::move(reply), request.chat.fields, "resp_"),
        parser_(form),
        writer_(head(), request.repeated) {}

 private:
  void take(std::size_t index, generate::Delta& delta) override;

  [[nodiscard]] std::string body() override {
    (void)last_events();
    return writer_.body();
  }

  [[nodiscard]] std::string last_events() override { return writer_.end(is_cut_, usage()); }

  [[nodiscard]] std::string error_events(const ApiError& error) override {
    return writer_.fail(error.what());
  }

  AnswerParser parser_;
  ResponseWriter writer_;
  bool has_begun_ = false;
  bool is_cut_ = false;
};

void ResponseJob::take(std::size_t index, generate::Delta& delta) {
  AnswerDelta added = parser_.push(delta.text);
  if (parser_.is_in_thought() || !added.thought.empty()) count_thought_tokens(delta.tokens.size());
  std::string events = std::exchange(has_begun_, true) ? std::string() : writer_.begin();
  events += writer_.add(added);
  if (delta.finish) {
    is_cut_ = *delta.finish == generate::FinishReason::length && !parser_.is_complete();
    events += writer_.add(parser_.finish());
  } else if (parser_.is_complete()) {
    end_early(index);
  }
  if (streams() && !events.empty()) send_events(std::move(events));
}

}  // namespace

void run_response(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
                  const ResponseRequest& request) {
  try {
    ChatPlan plan = plan_chat(context.model, request.chat);
    const auto job = std::make_shared<ResponseJob>(context, std::move(reply), request, plan.form);
    job->count_prompt_tokens(plan.num_prompt_tokens);
    job->start(std::move(plan.requests), "input");
  } catch (const ApiError& error) {
    throw with_response_names(error);
  }
}

}  // namespace trireme::serve
