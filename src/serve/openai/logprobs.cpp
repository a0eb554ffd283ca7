#include "serve/openai/logprobs.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/files/json_lines.hpp"
#include "text/unicode/utf8.hpp"

namespace trireme::serve {
namespace {

double finite(float logprob) {
  return std::isfinite(logprob) ? double{logprob} : -9999.0;
}

std::string token_text(const text::Tokenizer& tokenizer, std::uint32_t id) {
  return tokenizer.decode(std::array{id});
}

Json token_json(const text::Tokenizer& tokenizer, std::uint32_t id, float logprob) {
  Json bytes = Json::array();
  for (const char c : tokenizer.token_bytes(id)) bytes.push_back(static_cast<unsigned char>(c));
  return {{"token", token_text(tokenizer, id)}, {"logprob", finite(logprob)}, {"bytes", bytes}};
}

}  // namespace

std::string chat_logprobs(const text::Tokenizer& tokenizer,
                          std::span<const generate::TokenReport> tokens) {
  Json content = Json::array();
  for (const generate::TokenReport& token : tokens) {
    Json one = token_json(tokenizer, token.id, token.logprob.value_or(0));
    one["top_logprobs"] = Json::array();
    for (const generate::TokenLogprob& each : token.top)
      one["top_logprobs"].push_back(token_json(tokenizer, each.id, each.logprob));
    content.push_back(std::move(one));
  }
  return json_text({{"content", std::move(content)}, {"refusal", nullptr}});
}

std::string CompletionLogprobs::of(std::span<const generate::TokenReport> tokens) {
  Json texts = Json::array();
  Json logprobs = Json::array();
  Json tops = Json::array();
  Json offsets = Json::array();
  for (const generate::TokenReport& token : tokens) {
    const std::string text = token_text(tokenizer_, token.id);
    texts.push_back(text);
    offsets.push_back(offset_);
    offset_ += static_cast<std::int64_t>(text::utf8_length(text));
    if (!token.logprob) {  // the first token of a prompt has no prediction
      logprobs.push_back(nullptr);
      tops.push_back(nullptr);
      continue;
    }
    logprobs.push_back(finite(*token.logprob));
    Json top = Json::object();
    const auto add = [&](const std::string& name, float logprob) {
      const auto found = top.find(name);
      if (found == top.end() || found->get<double>() < finite(logprob)) top[name] = finite(logprob);
    };
    for (const generate::TokenLogprob& each : token.top)
      add(token_text(tokenizer_, each.id), each.logprob);
    add(text, *token.logprob);
    tops.push_back(std::move(top));
  }
  return json_text({{"tokens", std::move(texts)},
                    {"token_logprobs", std::move(logprobs)},
                    {"top_logprobs", std::move(tops)},
                    {"text_offset", std::move(offsets)}});
}

}  // namespace trireme::serve
