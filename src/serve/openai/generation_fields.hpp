#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "generate/request.hpp"
#include "serve/openai/body_fields.hpp"

namespace trireme::serve {

/// The required form of the answer (`response_format`).
struct ResponseFormat {
  enum class Kind { text, json_object, json_schema };

  Kind kind = Kind::text;
  std::string schema = {};  // JSON of the schema
  const char* schema_field = "";
};

/// Fields that chat and completion requests have in common.
struct GenerationFields {
  std::string model;  // empty: the served model
  generate::SamplingConfig sampling{.temperature = 1.0};
  bool has_seed = false;
  std::optional<std::int64_t> max_tokens;
  std::int64_t num_answers = 1;
  std::vector<std::string> stop;
  bool ignore_eos = false;
  bool stream = false;
  bool include_usage = false;
  ResponseFormat response_format;
};

inline constexpr std::int64_t kMaxAnswers = 128;
inline constexpr std::size_t kMaxStopTexts = 4;
/// Maximum number of alternatives of a token that are reported with log-probabilities.
inline constexpr std::int64_t kMaxTopLogprobs = 20;

/// Reads and checks all common fields except max_tokens. Throws ApiError(400) that names the field,
/// also for a known field that this server does not support, unless its value changes nothing.
GenerationFields read_generation_fields(const BodyFields& fields);

}  // namespace trireme::serve
