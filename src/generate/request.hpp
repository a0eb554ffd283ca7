#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"
#include "generate/sampling_config.hpp"
#include "generate/token_mask.hpp"

/// What an engine is asked for, and what it answers with.
namespace trireme {

struct Request {
  std::vector<std::uint32_t> prompt;  // at least one id of the model's vocabulary
  std::int64_t max_tokens = 128;      // most new tokens; 0 with prompt_logprobs only
  SamplingConfig sampling;
  std::uint64_t answer = 0;  // which of several answers of one seed: 0, 1, ..
  /// The text ends before the first of these, which is in no delta, not even in part.
  std::vector<std::string> stop;
  /// The text ends before one of these ids. Where the request is to end as the model's texts do,
  /// those of LoadedModel::end_tokens.
  std::vector<std::uint32_t> end_tokens;
  bool ignore_eos = false;  // end tokens are tokens as others
  /// None: no log-probabilities; 0: of each drawn token; k: also of the k most likely.
  std::optional<std::int64_t> top_logprobs;
  bool prompt_logprobs = false;          // of the prompt's tokens too, as many as top_logprobs says
  bool skip_special_tokens = true;       // their text is in no delta
  std::shared_ptr<TokenMask> mask = {};  // shared: the caller may keep it to look at its state
};

struct TokenLogprob {
  std::uint32_t id = 0;
  float logprob = 0;  // natural logarithm
};

/// A token with what the model said of it: of its own logits, before penalties, temperature, filters
/// and masks. Ids that no token of the tokenizer has take no probability: they are never drawn.
struct TokenReport {
  std::uint32_t id = 0;
  std::optional<float> logprob;   // none: not asked for, or the first of a prompt
  std::vector<TokenLogprob> top;  // the most likely first; ties go to the smaller id
};

enum class FinishReason {
  stop,       // an end token or a stop string
  length,     // max_tokens, or the longest context
  cancelled,  // GenerationEngine::cancel
  error,      // Delta::error says which
};

/// "stop", "length", "cancelled", "error".
std::string_view finish_reason_name(FinishReason reason) noexcept;

/// What became known of one request in one step.
struct Delta {
  std::string text;  // whole UTF-8 characters; those that may yet be a stop string wait
  std::vector<TokenReport> tokens;  // drawn in this step; an end token that ended the text is not
  std::vector<TokenReport> prompt;  // with prompt_logprobs, once, before or beside the first token
  std::optional<FinishReason> finish;  // the last delta has it
  std::optional<Error> error;  // numeric: logits that are not finite; resource: no memory; internal
};

/// Called in the engine's thread, in order; must neither block nor throw. It may call submit and
/// cancel.
using OnDelta = std::function<void(Delta)>;

/// Why a request cannot be.
struct RequestProblem {
  std::string field;    // "prompt", "max_tokens", "top_p", "logit_bias", ..: as in an API
  std::string message;  // what follows "top_p = " or "--top-p ": "2, must be in (0, 1]"
};

/// Returns true if the prompt and one new token (with max_tokens 0: the prompt alone) are more than
/// `max_context` tokens.
inline bool is_too_long(const Request& request, std::int64_t max_context) {
  const std::int64_t least = request.max_tokens > 0 ? 1 : 0;
  return static_cast<std::int64_t>(request.prompt.size()) > max_context - least;
}

/// `max_context`: most tokens of prompt and text together.
std::optional<RequestProblem> find_problem(const Request& request, std::int64_t vocab_size,
                                           std::int64_t max_context);

}  // namespace trireme
