#include "serve/jobs/answer_job.hpp"

#include <algorithm>
#include <ctime>
#include <iterator>
#include <random>
#include <utility>

#include "core/error.hpp"
#include "core/log.hpp"
#include "serve/grammar/schema_rules.hpp"
#include "serve/tools/answer_parser.hpp"

namespace trireme::serve {
namespace {

/// Throws ApiError(400) for a strict tool with a schema that has no grammar.
[[noreturn]] void refuse_tool(const ChatRequest& request, const ToolProblem& found) {
  const std::vector<ToolSpec>& tools = request.input.tools;
  const auto tool = std::find_if(tools.begin(), tools.end(),
                                 [&](const ToolSpec& each) { return each.name == found.tool; });
  const SchemaProblem& problem = found.problem;
  const std::string path = formatted("tools[{}].function.parameters{}{}", tool - tools.begin(),
                                     problem.path.empty() ? "" : ".", problem.path);
  refuse_field(path, formatted("{}: {}", path, problem.reason));
}

ApiError shutting_down() {
  return {503, "The server is shutting down. Try again later.", "", "draining"};
}

}  // namespace

AnswerJob::AnswerJob(const JobContext& context, std::shared_ptr<http::HttpReply> reply,
                     const GenerationFields& fields, const char* id_prefix)
    : context_(context),
      reply_(std::move(reply)),
      head_{random_id(id_prefix), std::time(nullptr), context.model.facts().name,
            context.model.facts().fingerprint},
      streams_(fields.stream),
      with_usage_(fields.include_usage) {}

void AnswerJob::start(std::vector<generate::Request> requests, const std::string& prompt_field) {
  for (const generate::Request& request : requests) {
    const auto problem = context_.model.source().find_problem(request);
    if (!problem) continue;
    const bool is_prompt = problem->field == "prompt";
    const std::string field = is_prompt ? prompt_field : problem->field;
    throw ApiError(400, formatted("{} {} {}", field, is_prompt ? "has" : "is", problem->message),
                   field,
                   is_prompt && generate::is_too_long(request, context_.model.facts().max_context)
                       ? "context_length_exceeded"
                       : "invalid_value");
  }
  for (const generate::Request& request : requests)
    parts_.push_back({.counts_prompt = request.answer == 0});
  waiting_.assign(std::make_move_iterator(requests.begin()),
                  std::make_move_iterator(requests.end()));
  if (!submit_more()) {
    if (context_.model.source().has_ended()) throw shutting_down();
    throw ApiError(429, "The request queue is full. Try again later.", "", "queue_full");
  }
  reply_->on_gone([self = shared_from_this()] { self->cancel_all(); });
  reply_->on_late(context_.timeout_s, [self = shared_from_this()] {
    self->fail(ApiError(408,
                        "The request exceeded the time limit of the server (--request-timeout-s).",
                        "", "timeout"));
  });
}

bool AnswerJob::submit_more() {
  while (!waiting_.empty()) {
    const std::size_t index = num_started_;
    const auto on_delta = [self = shared_from_this(), index](generate::Delta delta) {
      const auto shared = std::make_shared<generate::Delta>(std::move(delta));
      self->reply_->post([self, index, shared, when = Clock::now()] {
        self->on_delta(index, std::move(*shared), when);
      });
    };
    // A request that already has answers continues even if other requests have filled the queue.
    const bool follows = num_done_ > 0 && num_started_ == num_done_;
    const auto id = context_.model.source().submit(waiting_.front(), on_delta, follows);
    if (!id) return num_started_ > 0;
    parts_[index].id = *id;
    parts_[index].is_running = true;
    waiting_.pop_front();
    ++num_started_;
  }
  return true;
}

void AnswerJob::on_delta(std::size_t index, generate::Delta delta, Clock::time_point when) {
  Part& part = parts_[index];
  if (is_over_ || !part.is_running) return;
  if (part.ends_early) {  // tokens that the engine sampled before it received the cancellation
    delta.tokens.clear();
    if (delta.finish) delta.finish = generate::FinishReason::stop;
  }
  try {
    usage_.completion_tokens += static_cast<std::int64_t>(delta.tokens.size());
    if (part.counts_prompt) usage_.cached_tokens += delta.cached_tokens;
    if (!delta.tokens.empty()) measure(part, delta.tokens.size(), when);
    if (delta.finish == generate::FinishReason::error) {
      const bool is_resource = delta.error && delta.error->kind() == ErrorKind::resource;
      return fail(ApiError(is_resource ? 503 : 500,
                           delta.error ? delta.error->what() : "The generation failed.", "",
                           is_resource ? "out_of_memory" : "generation_failed"));
    }
    if (delta.finish == generate::FinishReason::cancelled) return fail(shutting_down());
    take(index, delta);
    if (delta.finish) finish_part(part);
  } catch (...) {
    fail(current_api_error());
  }
}

void AnswerJob::measure(Part& part, std::size_t num_tokens, Clock::time_point when) {
  const auto seconds_since = [&](Clock::time_point then) {
    return std::chrono::duration<double>(when - then).count();
  };
  if (part.last_token) {
    const double each = seconds_since(*part.last_token) / static_cast<double>(num_tokens);
    for (std::size_t i = 0; i < num_tokens; ++i) context_.metrics.inter_token_s.add(each);
  } else {
    context_.metrics.first_token_s.add(seconds_since(begun_));
  }
  part.last_token = when;
}

void AnswerJob::end_early(std::size_t index) {
  if (std::exchange(parts_[index].ends_early, true)) return;
  context_.model.source().cancel(parts_[index].id);
}

void AnswerJob::finish_part(Part& part) {
  part.is_running = false;
  ++num_done_;
  if (num_done_ < parts_.size()) {
    submit_more();
    if (num_started_ == num_done_) fail(shutting_down());  // the engine has ended
    return;
  }
  is_over_ = true;
  context_.metrics.request_s.add(std::chrono::duration<double>(Clock::now() - begun_).count());
  if (!streams_) return reply_->answer({.body = body()});
  send_events(last_events());
  reply_->end();
}

void AnswerJob::send_events(std::string bytes) {
  // The stream begins with its first event, so that an earlier error gets its own HTTP status.
  if (!std::exchange(has_events_, true)) reply_->begin_events();
  reply_->write(std::move(bytes));
}

std::string AnswerJob::usage_and_done(const char* object) const {
  const std::string usage =
      with_usage_ ? sse_event(usage_chunk(head_, object, usage_)) : std::string();
  return usage + std::string(kSseDone);
}

std::string AnswerJob::error_events(const ApiError& error) {
  return sse_event(error.body()) + std::string(kSseDone);
}

void AnswerJob::fail(const ApiError& error) {
  if (is_over_) return;
  cancel_all();
  if (error.status() >= 500) log::error(formatted("request {}: {}", head_.id, error.what()));
  if (!has_events_) return reply_->answer(error_answer(error));
  reply_->write(error_events(error));
  reply_->end();
}

void AnswerJob::cancel_all() {
  is_over_ = true;
  waiting_.clear();
  for (const Part& part : parts_) {
    if (part.is_running) context_.model.source().cancel(part.id);
  }
}

generate::SamplingConfig sampling_of(const GenerationFields& fields) {
  generate::SamplingConfig sampling = fields.sampling;
  if (!fields.has_seed) {
    std::random_device random;
    sampling.seed = static_cast<std::int64_t>(std::uint64_t{random()} << 31 ^ random());
  }
  return sampling;
}

std::optional<TextGrammar> grammar_of(const ResponseFormat& format) {
  const std::string field = format.schema_field;
  if (format.kind == ResponseFormat::Kind::text) return std::nullopt;
  if (format.kind == ResponseFormat::Kind::json_object) return json_object_grammar();
  try {
    return json_schema_grammar(format.schema);
  } catch (const SchemaProblem& problem) {
    const std::string path = field + (problem.path.empty() ? "" : "." + problem.path);
    refuse_field(path, formatted("{}: {}", path, problem.reason));
  } catch (const Error& error) {
    refuse_field(field, formatted("{}: {}", field, error.what()));
  }
}

std::optional<TextGrammar> grammar_of(const ChatRequest& request, bool several_calls) {
  const std::vector<ToolSpec>& all = request.input.tools;
  const bool is_strict =
      request.tool_choice == ToolChoice::automatic &&
      std::any_of(all.begin(), all.end(), [](const ToolSpec& tool) { return tool.is_strict; });
  if (request.tool_choice != ToolChoice::required && !is_strict)
    return grammar_of(request.fields.response_format);
  std::vector<CallableTool> tools;
  for (const ToolSpec& tool : request.input.tools) {
    if (request.tool_name.empty() || request.tool_name == tool.name)
      tools.push_back({tool.name, tool.parameters, tool.is_strict});
  }
  try {
    return tool_call_grammar(tools, several_calls,
                             is_strict ? CallStart::opened : CallStart::whole);
  } catch (const ToolProblem& found) {
    refuse_tool(request, found);
  }
}

std::shared_ptr<generate::TokenMask> mask_of(const TextGrammar& grammar, const ServedModel& model,
                                             const generate::Request& request,
                                             const GrammarPosition& place) {
  if (request.ignore_eos)
    refuse_field("ignore_eos",
                 "ignore_eos must be false if response_format or tools restrict the answer");
  if (request.end_tokens.empty())
    refuse_field(
        "response_format",
        "response_format must be text: this model has no end token, so a restricted answer "
        "could not end");
  std::vector<FreeText> before;
  if (place.after_thought) {
    before.push_back({std::string(kCloseThought)});
  } else if (place.if_called) {
    // The model may open a thought, and a thought may mention a call.
    before.push_back({std::string(kCloseThought), /*may_end=*/true, std::string(kOpenThought)});
  }
  if (place.if_called) before.push_back({std::string(kOpenCall), /*may_end=*/true});
  return std::make_shared<GrammarMask>(grammar, model.sorted_tokens(), request.end_tokens,
                                       std::move(before));
}

const char* reply_reason(generate::FinishReason reason) {
  return reason == generate::FinishReason::length ? "length" : "stop";
}

http::HttpResponse error_answer(const ApiError& error) {
  http::HttpResponse answer{.status = error.status(), .body = error.body()};
  if (error.status() == 401) answer.headers = {{"WWW-Authenticate", "Bearer"}};
  if (error.status() == 429 || error.status() == 503) answer.headers = {{"Retry-After", "1"}};
  return answer;
}

}  // namespace trireme::serve
