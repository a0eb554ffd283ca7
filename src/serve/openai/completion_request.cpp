#include "serve/openai/completion_request.hpp"

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "serve/openai/api_error.hpp"

namespace trireme::serve {
namespace {

constexpr std::int64_t kDefaultMaxTokens = 16;  // default of OpenAI's API

[[noreturn]] void refuse_prompt(const std::string& field) {
  refuse_field(field, formatted("{} must be a string, a list of strings, a list of token ids or a "
                                "list of such lists",
                                field));
}

bool is_id(const Json& value) {
  return value.is_number_unsigned() &&
         value.get<std::uint64_t>() <= std::numeric_limits<std::uint32_t>::max();
}

CompletionPrompt one_prompt(const Json& value, const std::string& field) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_array() || value.empty() || !std::all_of(value.begin(), value.end(), is_id))
    refuse_prompt(field);
  return value.get<std::vector<std::uint32_t>>();
}

}  // namespace

std::vector<CompletionPrompt> read_prompt_list(const BodyFields& fields, const char* name,
                                               std::size_t most) {
  const Json* value = fields.find(name);
  const std::string field = fields.name_of(name);
  if (value == nullptr) refuse_field(field, field + " is missing");
  const bool is_one =
      value->is_string() || (value->is_array() && !value->empty() && value->front().is_number());
  if (is_one) return {one_prompt(*value, field)};
  if (!value->is_array() || value->empty()) refuse_prompt(field);
  if (value->size() > most)
    refuse_field(
        field, formatted("{} has {} entries, at most {} are allowed", field, value->size(), most));
  std::vector<CompletionPrompt> prompts;
  for (const Json& each : *value) {
    if (each.is_string() != value->front().is_string()) refuse_prompt(field);
    prompts.push_back(one_prompt(each, field));
  }
  return prompts;
}

CompletionRequest read_completion_request(std::string_view json) {
  const Json body = parse_body(json);
  const BodyFields fields(body);
  CompletionRequest request;
  request.fields = read_generation_fields(fields);
  request.prompts = read_prompt_list(fields, "prompt", kMaxPrompts);
  request.echo = fields.boolean("echo").value_or(false);
  request.logprobs = fields.integer("logprobs", 0, kMaxTopLogprobs);
  request.fields.max_tokens =
      fields.integer("max_tokens", 0, std::numeric_limits<std::int64_t>::max())
          .value_or(kDefaultMaxTokens);
  fields.refuse_unknown();
  if (*request.fields.max_tokens == 0 && !request.echo)
    refuse_field("max_tokens", "max_tokens is 0. It must be at least 1 unless echo is true.");
  return request;
}

}  // namespace trireme::serve
