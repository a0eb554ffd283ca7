#include "serve/jobs/request_forms.hpp"

#include <algorithm>
#include <random>
#include <vector>

#include "core/error.hpp"
#include "serve/grammar/schema_rules.hpp"
#include "serve/openai/api_error.hpp"
#include "serve/tools/answer_parser.hpp"

namespace trireme {
namespace {

/// A strict tool whose schema has no grammar.
[[noreturn]] void refuse_tool(const ChatRequest& request, const ToolProblem& found) {
  const std::vector<ToolSpec>& tools = request.input.tools;
  const auto tool = std::find_if(tools.begin(), tools.end(),
                                 [&](const ToolSpec& each) { return each.name == found.tool; });
  const SchemaProblem& problem = found.problem;
  const std::string path =
      formatted("tools[{}].function.parameters{}{}", tool - tools.begin(),
                problem.path.empty() ? "" : ".", problem.path);
  refuse_field(path, formatted("{}: {}", path, problem.reason));
}

}  // namespace

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

std::shared_ptr<TokenMask> mask_of(const TextGrammar& grammar, const ServedModel& model,
                                   const Request& request, const FormPlace& place) {
  if (request.ignore_eos)
    refuse_field("ignore_eos", "ignore_eos must be false where the answer has a form");
  if (request.end_tokens.empty())
    refuse_field("response_format",
                 "the model has no end token, so an answer of a form cannot end");
  std::vector<FreeText> before;
  if (place.after_thought) before.push_back({"</think>"});
  if (place.if_called) before.push_back({std::string(kOpenCall), /*may_end=*/true});
  return std::make_shared<GrammarMask>(grammar, model.sorted_tokens(), request.end_tokens,
                                       std::move(before));
}

const char* reply_reason(FinishReason reason) {
  return reason == FinishReason::length ? "length" : "stop";
}

}  // namespace trireme
