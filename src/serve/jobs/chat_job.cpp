#include <iterator>
#include <utility>

#include "serve/jobs/answer_job.hpp"
#include "serve/jobs/chat_plan.hpp"
#include "serve/openai/logprobs.hpp"
#include "serve/tools/answer_parser.hpp"

namespace trireme::serve {
namespace {

/// Answers a request to /v1/chat/completions.
class ChatJob final : public AnswerJob {
 public:
  ChatJob(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
          const ChatRequest& request, const AnswerForm& form);

 private:
  struct Choice {
    AnswerParser parser;
    AnswerDelta answer;                         // the whole answer unless the job streams
    std::vector<generate::TokenReport> tokens;  // all tokens unless the job streams
    std::int64_t num_calls = 0;                 // calls that were sent
    bool has_role = false;
    std::string finish_reason = {};
  };

  void take(std::size_t index, generate::Delta& delta) override;
  void send(std::size_t index, Choice& choice, AnswerDelta added, const generate::Delta& delta);
  [[nodiscard]] std::string body() override;

  [[nodiscard]] std::string last_events() override {
    return usage_and_done("chat.completion.chunk");
  }

  bool with_logprobs_;
  std::vector<Choice> choices_;
};

ChatJob::ChatJob(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
                 const ChatRequest& request, const AnswerForm& form)
    : AnswerJob(context, std::move(reply), request.fields, "chatcmpl-"),
      with_logprobs_(request.logprobs) {
  for (std::int64_t i = 0; i < request.fields.num_answers; ++i)
    choices_.push_back({.parser = AnswerParser(form), .answer = {}, .tokens = {}});
}

void ChatJob::take(std::size_t index, generate::Delta& delta) {
  Choice& choice = choices_[index];
  AnswerDelta added = choice.parser.push(delta.text);
  if (choice.parser.is_in_thought() || !added.thought.empty())
    count_thought_tokens(delta.tokens.size());
  if (delta.finish) {
    AnswerDelta rest = choice.parser.finish();
    added.thought += rest.thought;
    added.content += rest.content;
    const bool calls = choice.parser.has_calls() && (delta.finish == generate::FinishReason::stop ||
                                                     choice.parser.is_complete());
    choice.finish_reason = calls ? "tool_calls" : reply_reason(*delta.finish);
  } else if (choice.parser.is_complete()) {
    end_early(index);
  }
  if (streams()) return send(index, choice, std::move(added), delta);
  choice.answer.thought += added.thought;
  choice.answer.content += added.content;
  for (AnswerCall& call : added.calls) choice.answer.calls.push_back(std::move(call));
  if (with_logprobs_) {
    choice.tokens.insert(choice.tokens.end(), std::make_move_iterator(delta.tokens.begin()),
                         std::make_move_iterator(delta.tokens.end()));
  }
}

void ChatJob::send(std::size_t index, Choice& choice, AnswerDelta added,
                   const generate::Delta& delta) {
  ChatDelta event{.index = static_cast<std::int64_t>(index)};
  if (!std::exchange(choice.has_role, true)) {
    event.is_first = true;
    send_event(chat_chunk(head(), event, with_usage()));
    event.is_first = false;
  }
  event.num_calls_before = choice.num_calls;
  choice.num_calls += static_cast<std::int64_t>(added.calls.size());
  event.answer = std::move(added);
  if (with_logprobs_ && !delta.tokens.empty())
    event.logprobs = chat_logprobs(model().tokenizer(), delta.tokens);
  if (!event.answer.empty() || !event.logprobs.empty())
    send_event(chat_chunk(head(), event, with_usage()));
  if (!delta.finish) return;
  const ChatDelta last{.index = event.index, .finish_reason = choice.finish_reason};
  send_event(chat_chunk(head(), last, with_usage()));
}

std::string ChatJob::body() {
  std::vector<ChatChoice> choices;
  for (const Choice& choice : choices_) {
    choices.push_back(
        {.index = static_cast<std::int64_t>(choices.size()),
         .answer = choice.answer,
         .logprobs = with_logprobs_ ? chat_logprobs(model().tokenizer(), choice.tokens) : "",
         .finish_reason = choice.finish_reason});
  }
  return chat_reply(head(), choices, usage());
}

}  // namespace

void run_chat(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
              const ChatRequest& request) {
  ChatPlan plan = plan_chat(context.model, request);
  const auto job = std::make_shared<ChatJob>(context, std::move(reply), request, plan.form);
  job->count_prompt_tokens(plan.num_prompt_tokens);
  job->start(std::move(plan.requests), "messages");
}

}  // namespace trireme::serve
