#include "serve/openai/embedding_request.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json_lines.hpp"
#include "serve/openai/api_error.hpp"

namespace trireme::serve {

EmbeddingRequest read_embedding_request(std::string_view json) {
  const Json body = parse_body(json);
  const BodyFields fields(body);
  EmbeddingRequest request;
  request.model = fields.text("model").value_or("");
  request.inputs = read_prompt_list(fields, "input", kMaxEmbeddingInputs);
  for (const CompletionPrompt& input : request.inputs) {
    const auto* text = std::get_if<std::string>(&input);
    if (text != nullptr && text->empty())
      refuse_field("input", "input has an empty string. Each input must have a character.");
  }
  const std::string encoding = fields.text("encoding_format").value_or("float");
  if (encoding != "float" && encoding != "base64")
    fields.refuse("encoding_format", "float or base64");
  request.is_base64 = encoding == "base64";
  if (fields.find("dimensions") != nullptr)
    throw ApiError(400,
                   "dimensions is not supported. An embedding has as many values as a hidden state "
                   "of the model.",
                   "dimensions", "unsupported_parameter");
  (void)fields.find("user");  // ignored: it only identifies the user
  fields.refuse_unknown();
  return request;
}

void scale_to_unit_length(std::vector<float>& vector) {
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * value;
  if (squares == 0) return;
  const double scale = 1 / std::sqrt(squares);
  for (float& value : vector) value = static_cast<float>(value * scale);
}

std::string base64_of(const std::vector<float>& values) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  for (const float value : values) {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(bits >> shift & 255);
  }
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t k = 0; k < 3; ++k)
      group = group << 8 | (k < count ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    for (std::size_t k = 0; k < 4; ++k)
      text += k <= count ? kDigits[group >> (18 - 6 * k) & 63] : '=';
  }
  return text;
}

std::string embedding_reply(const EmbeddingRequest& request, const std::string& model,
                            const std::vector<std::vector<float>>& vectors,
                            std::int64_t prompt_tokens) {
  Json data = Json::array();
  for (const std::vector<float>& vector : vectors) {
    data.push_back({{"object", "embedding"},
                    {"index", data.size()},
                    {"embedding", request.is_base64 ? Json(base64_of(vector)) : Json(vector)}});
  }
  return json_text(
      {{"object", "list"},
       {"data", std::move(data)},
       {"model", model},
       {"usage", {{"prompt_tokens", prompt_tokens}, {"total_tokens", prompt_tokens}}}});
}

}  // namespace trireme::serve
