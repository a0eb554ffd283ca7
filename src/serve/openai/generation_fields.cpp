#include "serve/openai/generation_fields.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "core/number.hpp"
#include "generate/sampling.hpp"
#include "serve/openai/api_error.hpp"

namespace trireme::serve {
namespace {

/// Returns the known fields that this server does not support, each with the values that change
/// nothing and are therefore accepted. The fields come from OpenAI's API and from the servers of
/// vLLM and llama.cpp. Sources: OpenAI's API reference, "Create chat completion" and "Create
/// completion"; vLLM, "OpenAI-compatible server"; llama.cpp, tools/server/README.md.
const Json& unsupported_fields() {
  static const Json table = Json::parse(R"({
    "audio": [], "function_call": [], "functions": [[]], "modalities": [["text"]],
    "prediction": [], "service_tier": ["auto", "default"], "store": [false], "suffix": [""],
    "verbosity": ["medium"], "web_search_options": [], "allowed_token_ids": [], "bad_words": [[]],
    "chat_template": [], "continue_final_message": [false], "documents": [[]], "guided_choice": [],
    "guided_grammar": [], "guided_json": [], "guided_regex": [],
    "include_stop_str_in_output": [false], "length_penalty": [1], "logits_processors": [[]],
    "min_tokens": [0], "prompt_embeds": [], "prompt_logprobs": [], "return_token_ids": [false],
    "return_tokens_as_token_ids": [false], "skip_special_tokens": [true], "stop_token_ids": [[]],
    "structured_outputs": [], "thinking_token_budget": [], "truncate_prompt_tokens": [],
    "use_beam_search": [false], "dry_multiplier": [0], "dynatemp_range": [0], "grammar": [""],
    "json_schema": [], "lora": [[]], "mirostat": [0], "min_keep": [0], "n_predict": [-1],
    "n_probs": [0], "repeat_last_n": [-1, 0, 64], "repeat_penalty": [1], "samplers": [],
    "tfs_z": [1], "top_n_sigma": [-1, 0], "typical_p": [1], "xtc_probability": [0],
    "guided_whitespace_pattern": [], "id_slot": [-1], "include_reasoning": [true],
    "kv_transfer_params": [], "mm_processor_kwargs": [], "n_keep": [0],
    "post_sampling_probs": [false], "priority": [0], "reasoning_format": ["auto", "deepseek"],
    "return_progress": [false], "spaces_between_special_tokens": [true],
    "t_max_predict_ms": [-1, 0], "timings_per_token": [false]})");
  return table;
}

/// Fields of the same sources that never change an answer. They identify the user, control caching
/// in a service, or configure a sampler that unsupported_fields refuses.
constexpr std::array kWithoutEffect{
    "cache_prompt",           "cache_salt",   "metadata",           "prompt_cache_key",
    "prompt_cache_retention", "request_id",   "safety_identifier",  "user",
    "dry_allowed_length",     "dry_base",     "dry_penalty_last_n", "dry_sequence_breakers",
    "dynatemp_exponent",      "mirostat_eta", "mirostat_tau",       "xtc_threshold"};

void refuse_unsupported(const BodyFields& fields) {
  for (const auto& [name, neutral] : unsupported_fields().items()) {
    const Json* value = fields.find(name);
    if (value == nullptr || std::find(neutral.begin(), neutral.end(), *value) != neutral.end())
      continue;
    throw ApiError(400, formatted("{} is not supported", name), name, "unsupported_parameter");
  }
  for (const char* name : kWithoutEffect) (void)fields.find(name);
}

std::vector<std::string> read_stop(const BodyFields& fields) {
  const Json* value = fields.find("stop");
  if (value == nullptr) return {};
  const Json list = value->is_array() ? *value : Json::array({*value});
  std::vector<std::string> texts;
  for (const Json& each : list) {
    if (!each.is_string() || each.get_ref<const std::string&>().empty())
      refuse_field("stop",
                   "stop must be a string or a list of strings, and no string may be empty");
    texts.push_back(each.get<std::string>());
  }
  if (texts.size() > kMaxStopTexts)
    refuse_field("stop", formatted("stop has {} strings, at most {} are allowed", texts.size(),
                                   kMaxStopTexts));
  return texts;
}

std::map<std::uint32_t, double> read_logit_bias(const BodyFields& fields) {
  std::map<std::uint32_t, double> bias;
  const Json* value = fields.find("logit_bias");
  if (value == nullptr) return bias;
  if (!value->is_object()) fields.refuse("logit_bias", "an object that maps token ids to numbers");
  for (const auto& [key, added] : value->items()) {
    const auto id = parse_integer(key);
    if (!id || *id < 0 || *id > std::int64_t{std::numeric_limits<std::uint32_t>::max()})
      refuse_field("logit_bias", formatted("logit_bias has the key '{}', must be a token id", key));
    if (!added.is_number()) {
      refuse_field("logit_bias", formatted("logit_bias of token {} is {}, must be a number", key,
                                           json_text(added)));
    }
    bias[static_cast<std::uint32_t>(*id)] = added.get<double>();
  }
  return bias;
}

void read_sampling(const BodyFields& fields, generate::SamplingConfig& sampling) {
  constexpr double kSmallestTopP = 1e-12;  // 0 means: only the most likely token
  const auto set = [](auto& member, const auto& value) {
    if (value) member = *value;
  };
  set(sampling.temperature, fields.number("temperature"));
  set(sampling.top_p, fields.number("top_p"));
  if (sampling.top_p == 0) sampling.top_p = kSmallestTopP;
  set(sampling.min_p, fields.number("min_p"));
  set(sampling.top_k, fields.integer("top_k", -1, std::numeric_limits<std::int32_t>::max()));
  sampling.top_k = std::max<std::int64_t>(sampling.top_k, 0);  // other servers use -1 for "all"
  set(sampling.repetition_penalty, fields.number("repetition_penalty"));
  set(sampling.presence_penalty, fields.number("presence_penalty"));
  set(sampling.frequency_penalty, fields.number("frequency_penalty"));
  set(sampling.seed, fields.integer("seed", std::numeric_limits<std::int64_t>::min(),
                                    std::numeric_limits<std::int64_t>::max()));
  sampling.logit_bias = read_logit_bias(fields);
  if (const auto problem = generate::find_problem(sampling))
    refuse_field(problem->field, formatted("{} is {}", problem->field, problem->message));
}

ResponseFormat read_response_format(const BodyFields& fields) {
  const auto format = fields.object("response_format");
  if (!format) return {};
  const auto type = format->text("type");
  const bool is_object = type == "json_object";
  if (!is_object && type != "text" && type != "json_schema")
    format->refuse("type", "text, json_object or json_schema");
  // llama.cpp allows a schema in json_object.
  const bool has_schema = is_object && format->find("schema") != nullptr;
  const auto described = type == "json_schema" ? format->object("json_schema") : format;
  if (!described) format->refuse("json_schema", "an object with name and schema");
  if (type == "json_schema") {
    (void)described->text("name");
    (void)described->text("description");
    (void)described->boolean("strict");  // ignored: answers always match a schema
    (void)described->find("schema");
    described->refuse_unknown();
  }
  format->refuse_unknown();
  if (type == "text") return {};
  if (is_object && !has_schema) return {.kind = ResponseFormat::Kind::json_object};
  const Json* schema = described->find("schema");
  if (schema == nullptr || !(schema->is_object() || schema->is_boolean()))
    described->refuse("schema", "a JSON schema");
  return {
      .kind = ResponseFormat::Kind::json_schema,
      .schema = json_text(*schema),
      .schema_field = is_object ? "response_format.schema" : "response_format.json_schema.schema"};
}

}  // namespace

GenerationFields read_generation_fields(const BodyFields& fields) {
  refuse_unsupported(fields);
  GenerationFields read;
  read.model = fields.text("model").value_or("");
  read_sampling(fields, read.sampling);
  read.has_seed = fields.find("seed") != nullptr;
  read.num_answers = fields.integer("n", 1, kMaxAnswers).value_or(1);
  read.stop = read_stop(fields);
  read.ignore_eos = fields.boolean("ignore_eos").value_or(false);
  read.stream = fields.boolean("stream").value_or(false);
  if (const auto options = fields.object("stream_options")) {
    if (!read.stream) refuse_field("stream_options", "stream_options requires stream to be true");
    read.include_usage = options->boolean("include_usage").value_or(false);
    (void)options->boolean("include_obfuscation");  // ignored: it only adds padding to events
    if (options->boolean("continuous_usage_stats").value_or(false))
      refuse_field("stream_options.continuous_usage_stats",
                   "stream_options.continuous_usage_stats is not supported");
    options->refuse_unknown();
  }
  if (const auto best_of = fields.integer("best_of", 1, kMaxAnswers);
      best_of && *best_of != read.num_answers)
    throw ApiError(400,
                   formatted("best_of is {} and n is {}. Only best_of equal to n is supported.",
                             *best_of, read.num_answers),
                   "best_of", "unsupported_parameter");
  read.response_format = read_response_format(fields);
  return read;
}

}  // namespace trireme::serve
