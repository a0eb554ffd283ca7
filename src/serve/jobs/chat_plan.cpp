#include "serve/jobs/chat_plan.hpp"

#include "serve/jobs/answer_job.hpp"

namespace trireme::serve {

ChatPlan plan_chat(const ServedModel& model, const ChatRequest& request) {
  const bool has_form = request.fields.response_format.kind != ResponseFormat::Kind::text ||
                        request.tool_choice == ToolChoice::required;
  ChatInput input = request.input;
  // In some chat formats, thinking is on by default. A client that requests JSON or a call does not
  // expect a thought.
  if (has_form && !input.thinking) input.thinking = false;
  const RenderedPrompt chat = model.write(input, has_form);

  generate::Request one;
  one.prompt = chat.ids;
  one.max_tokens = request.fields.max_tokens.value_or(model.facts().max_context);
  one.sampling = sampling_of(request.fields);
  one.stop = request.fields.stop;
  one.end_tokens = model.chat_end_tokens();
  one.ignore_eos = request.fields.ignore_eos;
  if (request.logprobs) one.top_logprobs = request.top_logprobs;
  one.skip_special_tokens = !model.has_special_markers();

  AnswerForm form{.begins_in_thought = chat.begins_in_thought,
                  .several_calls = request.parallel_tool_calls && request.tool_name.empty()};
  if (request.tool_choice != ToolChoice::none) {
    for (const ToolSpec& tool : request.input.tools) {
      if (request.tool_name.empty() || request.tool_name == tool.name)
        form.tools.push_back(tool.name);
    }
  }
  const auto grammar = grammar_of(request, form.several_calls);
  const GrammarPosition place{.after_thought = chat.begins_in_thought,
                              .if_called = request.tool_choice == ToolChoice::automatic};
  // If the answer is JSON, a string in it may contain an end text, so do not stop there.
  if ((!grammar || place.if_called) && !one.ignore_eos) {
    const std::vector<std::string>& ends = model.chat_end_texts();
    one.stop.insert(one.stop.end(), ends.begin(), ends.end());
  }
  std::vector<generate::Request> requests;
  for (std::int64_t i = 0; i < request.fields.num_answers; ++i) {
    one.answer = static_cast<std::uint64_t>(i);
    one.mask = grammar ? mask_of(*grammar, model, one, place) : nullptr;
    requests.push_back(one);
  }
  return {std::move(requests), chat.ids.size(), std::move(form)};
}

}  // namespace trireme::serve
