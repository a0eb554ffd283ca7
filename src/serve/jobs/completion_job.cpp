#include <iterator>
#include <utility>

#include "core/error.hpp"
#include "serve/jobs/answer_job.hpp"
#include "serve/openai/logprobs.hpp"

namespace trireme::serve {
namespace {

constexpr std::size_t kMaxChoices = 2048;

generate::Request engine_request(const CompletionRequest& request, const ServedModel& model) {
  generate::Request one;
  one.max_tokens = request.fields.max_tokens.value_or(model.facts().max_context);
  one.sampling = sampling_of(request.fields);
  one.stop = request.fields.stop;
  one.end_tokens = model.facts().end_tokens;
  one.ignore_eos = request.fields.ignore_eos;
  one.prompt_logprobs = request.echo && (request.logprobs || one.max_tokens == 0);
  if (request.logprobs || one.prompt_logprobs) one.top_logprobs = request.logprobs.value_or(0);
  // Clients that score a text (echo with logprobs) drop the last entry, because it is the sampled
  // token. Therefore an end token must not end the answer before it.
  if (one.prompt_logprobs && one.max_tokens == 1) one.ignore_eos = true;
  return one;
}

/// Answers a request to /v1/completions. The choices p * n to p * n + n - 1 belong to prompt p.
class CompletionJob final : public AnswerJob {
 public:
  CompletionJob(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
                const CompletionRequest& request, const std::vector<std::string>& prompts);

 private:
  struct Choice {
    std::string text;  // the whole text; in a stream, the part that is not sent yet
    std::vector<generate::TokenReport> tokens;
    CompletionLogprobs logprobs;
    std::string finish_reason = {};
  };

  void take(std::size_t index, generate::Delta& delta) override;
  [[nodiscard]] CompletionChoice take_new(std::size_t index, Choice& choice) const;
  [[nodiscard]] std::string body() override;

  [[nodiscard]] std::string last_events() override { return usage_and_done("text_completion"); }

  bool with_logprobs_;
  std::vector<Choice> choices_;
};

CompletionJob::CompletionJob(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
                             const CompletionRequest& request,
                             const std::vector<std::string>& prompts)
    : AnswerJob(context, std::move(reply), request.fields, "cmpl-"),
      with_logprobs_(request.logprobs.has_value()) {
  for (std::size_t prompt = 0; prompt < request.prompts.size(); ++prompt) {
    for (std::int64_t i = 0; i < request.fields.num_answers; ++i) {
      choices_.push_back({.text = request.echo ? prompts[prompt] : "",
                          .tokens = {},
                          .logprobs = CompletionLogprobs(model().tokenizer())});
    }
  }
}

void CompletionJob::take(std::size_t index, generate::Delta& delta) {
  Choice& choice = choices_[index];
  choice.text += delta.text;
  if (with_logprobs_) {
    for (auto* reports : {&delta.prompt, &delta.tokens}) {
      choice.tokens.insert(choice.tokens.end(), std::make_move_iterator(reports->begin()),
                           std::make_move_iterator(reports->end()));
    }
  }
  if (delta.finish) choice.finish_reason = reply_reason(*delta.finish);
  const bool has_news = delta.finish || !choice.text.empty() || !choice.tokens.empty();
  if (streams() && has_news)
    send_event(completion_chunk(head(), take_new(index, choice), with_usage()));
}

/// Moves the new text and tokens out of `choice` and returns them.
CompletionChoice CompletionJob::take_new(std::size_t index, Choice& choice) const {
  CompletionChoice taken{.index = static_cast<std::int64_t>(index),
                         .text = std::exchange(choice.text, {}),
                         .logprobs = {},
                         .finish_reason = choice.finish_reason};
  if (with_logprobs_) taken.logprobs = choice.logprobs.of(std::exchange(choice.tokens, {}));
  return taken;
}

std::string CompletionJob::body() {
  std::vector<CompletionChoice> choices;
  for (std::size_t i = 0; i < choices_.size(); ++i) choices.push_back(take_new(i, choices_[i]));
  return completion_reply(head(), choices, usage());
}

}  // namespace

void run_completion(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
                    const CompletionRequest& request) {
  const ServedModel& model = context.model;
  const auto num_answers = static_cast<std::size_t>(request.fields.num_answers);
  if (request.prompts.size() * num_answers > kMaxChoices) {
    refuse_field(
        "n", formatted("n is {} for {} prompts. A request may have at most {} answers in total.",
                       num_answers, request.prompts.size(), kMaxChoices));
  }
  if (!request.fields.stop.empty()) model.require_tokenizer("stop");
  const auto grammar = grammar_of(request.fields.response_format);
  if (grammar) model.require_tokenizer("response_format");
  generate::Request one = engine_request(request, model);
  std::vector<generate::Request> requests;
  std::vector<std::string> texts;
  std::size_t num_prompt_tokens = 0;
  for (const CompletionPrompt& prompt : request.prompts) {
    const auto* text = std::get_if<std::string>(&prompt);
    one.prompt =
        text != nullptr ? model.encode(*text) : std::get<std::vector<std::uint32_t>>(prompt);
    if (request.echo)
      texts.push_back(text != nullptr ? *text : model.tokenizer().decode(one.prompt));
    num_prompt_tokens += one.prompt.size();
    for (std::size_t i = 0; i < num_answers; ++i) {
      one.answer = i;
      one.mask = grammar ? mask_of(*grammar, model, one, {}) : nullptr;
      requests.push_back(one);
    }
  }
  const auto job = std::make_shared<CompletionJob>(context, std::move(reply), request, texts);
  job->count_prompt_tokens(num_prompt_tokens);
  job->start(std::move(requests), "prompt");
}

}  // namespace trireme::serve
