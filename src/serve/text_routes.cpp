#include "serve/text_routes.hpp"

#include <limits>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "serve/openai/api_error.hpp"
#include "serve/openai/body_fields.hpp"

namespace trireme {
namespace {

Json model_json(const ServedModel& model) {
  const SamplingConfig sampling = GenerationFields().sampling;
  return {
      {"id", model.facts().name},
      {"object", "model"},
      {"created", model.facts().created},
      {"owned_by", "trireme"},
      {"max_model_len", model.facts().max_context},
      {"meta",
       {{"n_ctx", model.facts().max_context},
        {"n_vocab", model.facts().vocab_size},
        {"chat_template", model.facts().chat == nullptr ? Json() : Json(model.facts().chat->name)},
        {"sampling",
         {{"temperature", sampling.temperature},
          {"top_p", sampling.top_p},
          {"top_k", sampling.top_k},
          {"min_p", sampling.min_p},
          {"repetition_penalty", sampling.repetition_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty}}}}}};
}

/// Bytes that are no text alone are told as numbers.
Json piece_json(std::string_view bytes) {
  std::string text(bytes);
  try {
    (void)Json(text).dump();
    return text;
  } catch (const Json::exception&) {
    Json numbers = Json::array();
    for (const char c : bytes) numbers.push_back(static_cast<unsigned char>(c));
    return numbers;
  }
}

}  // namespace

void check_model_name(const ServedModel& model, std::string_view name) {
  if (name.empty() || name == model.facts().name) return;
  throw ApiError(404, formatted("there is no model '{}', must be '{}'", name, model.facts().name),
                 "model", "model_not_found");
}

std::string models_text(const ServedModel& model, std::string_view) {
  return json_text({{"object", "list"}, {"data", Json::array({model_json(model)})}});
}

std::string one_model_text(const ServedModel& model, std::string_view name) {
  check_model_name(model, name);
  return json_text(model_json(model));
}

std::string tokenize_text(const ServedModel& model, std::string_view body) {
  const Json parsed = parse_body(body);
  const BodyFields fields(parsed);
  const auto content = fields.text("content");
  if (!content) refuse_field("content", "content is missing");
  model.require_tokenizer("content");
  const EncodeOptions options{.add_special_tokens = fields.boolean("add_special").value_or(false),
                              .match_added_tokens = fields.boolean("parse_special").value_or(true)};
  const bool with_pieces = fields.boolean("with_pieces").value_or(false);
  check_model_name(model, fields.text("model").value_or(""));
  fields.refuse_unknown();
  Json tokens = Json::array();
  for (const std::uint32_t id : model.tokenizer().encode(*content, options)) {
    if (with_pieces) {
      tokens.push_back({{"id", id}, {"piece", piece_json(model.tokenizer().token_bytes(id))}});
    } else {
      tokens.push_back(id);
    }
  }
  return json_text({{"tokens", std::move(tokens)}});
}

std::string detokenize_text(const ServedModel& model, std::string_view body) {
  const Json parsed = parse_body(body);
  const BodyFields fields(parsed);
  const Json* tokens = fields.find("tokens");
  if (tokens == nullptr || !tokens->is_array()) fields.refuse("tokens", "a list of token ids");
  check_model_name(model, fields.text("model").value_or(""));
  fields.refuse_unknown();
  const auto num_ids = static_cast<std::uint64_t>(model.facts().vocab_size);
  std::vector<std::uint32_t> ids;
  for (const Json& token : *tokens) {
    const bool is_known = token.is_number_unsigned() && token.get<std::uint64_t>() < num_ids;
    if (!is_known) refuse_field("tokens", formatted("tokens must be integers in [0, {})", num_ids));
    ids.push_back(token.get<std::uint32_t>());
  }
  return json_text({{"content", model.tokenizer().decode(ids)}});
}

std::string apply_template_text(const ServedModel& model, std::string_view body) {
  return json_text({{"prompt", model.write(read_chat_request(body).input).text}});
}

}  // namespace trireme
