#include "serve/jobs/request_forms.hpp"

#include <random>

#include "core/error.hpp"
#include "serve/grammar/schema_rules.hpp"
#include "serve/openai/api_error.hpp"

namespace trireme {

SamplingConfig sampling_of(const GenerationFields& fields) {
  SamplingConfig sampling = fields.sampling;
  if (!fields.has_seed) {
    std::random_device random;
    sampling.seed = static_cast<std::int64_t>(std::uint64_t{random()} << 31 ^ random());
  }
  return sampling;
}

std::optional<TextGrammar> grammar_of(const ResponseFormat& format) {
  const std::string field = format.schema_field;
  switch (format.kind) {
    case ResponseFormat::Kind::text:
      return std::nullopt;
    case ResponseFormat::Kind::json_object:
      return json_object_grammar();
    case ResponseFormat::Kind::json_schema:
      break;
  }
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
  if (request.tool_choice != ToolChoice::required)
    return grammar_of(request.fields.response_format);
  std::vector<CallableTool> tools;
  for (const ToolSpec& tool : request.input.tools) {
    if (request.tool_name.empty() || request.tool_name == tool.name)
      tools.emplace_back(tool.name, tool.parameters);
  }
  return tool_call_grammar(tools, several_calls);
}

std::shared_ptr<TokenMask> mask_of(const TextGrammar& grammar, const ServedModel& model,
                                   const Request& request, bool begins_in_thought) {
  if (request.ignore_eos)
    refuse_field("ignore_eos", "ignore_eos must be false where the answer has a form");
  if (request.end_tokens.empty())
    refuse_field("response_format",
                 "the model has no end token, so an answer of a form cannot end");
  return std::make_shared<GrammarMask>(grammar, model.sorted_tokens(), request.end_tokens,
                                       begins_in_thought ? "</think>" : "");
}

const char* reply_reason(FinishReason reason) {
  return reason == FinishReason::length ? "length" : "stop";
}

}  // namespace trireme
