#include "generate/request.hpp"

#include "generate/sampling.hpp"

namespace trireme::generate {
namespace {

std::optional<RequestProblem> find_foreign_token(const Request& request, std::int64_t vocab_size) {
  const auto message = [&](std::uint32_t id) {
    return formatted("token {}, must be below {}", id, vocab_size);
  };
  for (const std::uint32_t id : request.prompt) {
    if (id >= vocab_size) return RequestProblem{"prompt", message(id)};
  }
  for (const auto& [id, bias] : request.sampling.logit_bias) {
    if (id >= vocab_size) return RequestProblem{"logit_bias", message(id)};
  }
  return std::nullopt;
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) noexcept {
  constexpr std::string_view kNames[] = {"stop", "length", "cancelled", "error"};  // by value
  return kNames[static_cast<std::size_t>(reason)];
}

std::optional<RequestProblem> find_problem(const Request& request, std::int64_t vocab_size,
                                           std::int64_t max_context) {
  const auto length = static_cast<std::int64_t>(request.prompt.size());
  if (length == 0) return RequestProblem{"prompt", "empty, must have a token"};
  if (is_too_long(request, max_context)) {
    const bool draws = request.max_tokens > 0;
    return RequestProblem{"prompt", formatted("{} tokens, must be at most {}{}", length,
                                              max_context - (draws ? 1 : 0),
                                              draws ? " (the context less one new token)" : "")};
  }
  const std::int64_t least = request.prompt_logprobs || request.embedding ? 0 : 1;
  if (request.embedding && request.max_tokens > 0)
    return RequestProblem{"max_tokens",
                          formatted("{}, must be 0 for an embedding", request.max_tokens)};
  if (request.max_tokens < least) {
    return RequestProblem{"max_tokens",
                          formatted("{}, must be {} or more", request.max_tokens, least)};
  }
  for (const std::string& stop : request.stop) {
    if (stop.empty()) return RequestProblem{"stop", "an empty text, must have a character"};
  }
  const std::int64_t top = request.top_logprobs.value_or(0);
  if (top < 0 || top > vocab_size)
    return RequestProblem{"top_logprobs", formatted("{}, must be 0 to {}", top, vocab_size)};
  if (auto problem = find_foreign_token(request, vocab_size)) return problem;
  return find_problem(request.sampling);
}

}  // namespace trireme::generate
