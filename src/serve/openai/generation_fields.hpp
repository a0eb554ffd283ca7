#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generate/request.hpp"
#include "serve/openai/body_fields.hpp"

namespace trireme {

/// The form that a text must have (`response_format`).
struct ResponseFormat {
  enum class Kind { text, json_object, json_schema };

  Kind kind = Kind::text;
  std::string schema = {};  // JSON of the schema
  const char* schema_field = "";
};

/// What chats and completions are asked with alike.
struct GenerationFields {
  std::string model;  // "": the one that is served
  SamplingConfig sampling{.temperature = 1.0};
  bool has_seed = false;
  std::optional<std::int64_t> max_tokens;
  std::int64_t num_answers = 1;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool stream = false;
  bool include_usage = false;
  ResponseFormat response_format;
};

/// Most answers of a request, and most stop texts.
inline constexpr std::int64_t kMaxAnswers = 128;
inline constexpr std::size_t kMaxStopTexts = 4;
/// Most alternatives of a token whose log-probabilities are told.
inline constexpr std::int64_t kMaxTopLogprobs = 20;

/// Reads and checks them, all but max_tokens, and refuses what is known here or elsewhere but does
/// nothing here, unless its value asks for nothing. Throws ApiError(400) that names the field.
GenerationFields read_generation_fields(const BodyFields& fields);

}  // namespace trireme
