#pragma once
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.hpp"

/// Generation requests and the results that the engine returns for them. No LibTorch.
namespace trireme::generate {

/// Settings that choose the next token. They are applied in this order: penalties (repetition, then
/// presence and frequency) and bias, mask, temperature, top-k, top-p (the token that crosses the
/// limit stays), min-p, draw. Each filter sees only the tokens that the earlier filters kept, like
/// the logits processors of Hugging Face transformers. MiniMind V3 divides by the temperature
/// before it applies the repetition penalty; the result is the same. find_problem in sampling.hpp
/// checks the ranges.
struct SamplingConfig {
  double temperature = 0.8;         // 0: the most likely token
  std::int64_t top_k = 0;           // 0: all
  double top_p = 1.0;               // greater than 0, at most 1
  double min_p = 0.0;               // at least 0, less than 1; a part of the largest probability
  double repetition_penalty = 1.0;  // on ids in prompt and answer: positive logits / p, others * p
  double presence_penalty = 0.0;    // subtracted from the logits of ids in the answer
  double frequency_penalty = 0.0;   // subtracted once for each occurrence in the answer
  std::map<std::uint32_t, double> logit_bias = {};  // added to the logit of an id
  std::int64_t seed = 0;  // draw i of answer a is a function of (seed, a, i) and the logits
};

/// Restricts the next token, for answers of a given form (a JSON schema). One object serves one
/// request. All calls come from the engine's thread, in the order of the answer's tokens.
class TokenMask {
 public:
  virtual ~TokenMask() = default;

  /// Sets bit id % 64 of word id / 64 for each id that may come next, among `vocab_size` ids. All
  /// bits are 0 before the call. At least one id must be allowed. End tokens are ids too: if the
  /// answer may end here, the bits of the end tokens must be set. If all ids are allowed, returns
  /// false and need not set `bits`.
  virtual bool allow(std::span<std::uint64_t> bits, std::int64_t vocab_size) = 0;

  /// Called once for each drawn token, end tokens included.
  virtual void accept(std::uint32_t id) = 0;
};

struct Request {
  std::vector<std::uint32_t> prompt;  // at least one id of the model's vocabulary
  // maximum number of new tokens; 0 is allowed only with prompt_logprobs or embedding
  std::int64_t max_tokens = 128;
  SamplingConfig sampling;
  std::uint64_t answer = 0;  // index among several answers with the same seed
  /// The answer ends before the first of these strings. No delta contains part of a stop string.
  std::vector<std::string> stop;
  /// The answer ends before the first of these ids. LoadedModel::end_tokens contains the end tokens
  /// of the model.
  std::vector<std::uint32_t> end_tokens;
  bool ignore_eos = false;  // treat end tokens like other tokens
  /// nullopt: no log-probabilities. 0: the log-probability of each generated token. k: also the
  /// log-probabilities of the k most likely tokens at each position.
  std::optional<std::int64_t> top_logprobs;
  /// Computes the mean of the hidden states after the final norm over all tokens of the prompt.
  /// max_tokens must be 0.
  bool embedding = false;
  bool prompt_logprobs = false;          // also for prompt tokens, with the same top_logprobs
  bool sampled_logprobs = false;         // fill Delta::sampled
  bool skip_special_tokens = true;       // deltas do not contain the text of special tokens
  std::shared_ptr<TokenMask> mask = {};  // shared, so that the caller can inspect its state
};

struct TokenLogprob {
  std::uint32_t id = 0;
  float logprob = 0;  // natural logarithm
};

/// The model's prediction for one token, from the original logits before penalties, temperature,
/// filters and masks. Ids that are not tokens have probability 0, because they are never sampled.
struct TokenReport {
  std::uint32_t id = 0;
  std::optional<float> logprob;   // nullopt: not requested, or the first token of a prompt
  std::vector<TokenLogprob> top;  // most likely first; if equally likely, the smaller id first
};

/// A drawn token with its log-probability under softmax(logits / temperature). The logits include
/// penalties, bias and mask, but top-k, top-p and min-p cut nothing.
struct SampledToken {
  std::uint32_t id = 0;
  double logprob = 0;
};

enum class FinishReason {
  stop,       // an end token or a stop string
  length,     // max_tokens or max_context
  cancelled,  // GenerationEngine::cancel
  error,      // described by Delta::error
};

std::string_view finish_reason_name(FinishReason reason) noexcept;

/// The new results of one request after one step.
struct Delta {
  std::string text;                    // complete UTF-8 characters, without a possible stop string
  std::vector<TokenReport> tokens;     // generated in this step, without the final end token
  std::vector<TokenReport> prompt;     // only with prompt_logprobs, sent once
  std::vector<SampledToken> sampled;   // only with sampled_logprobs; includes the end token
  std::vector<float> embedding;        // only with Request::embedding, in the last delta
  std::int64_t cached_tokens = 0;      // prompt tokens in cached blocks; set in the last delta
  std::optional<FinishReason> finish;  // set in the last delta
  std::optional<Error> error;          // numeric: non-finite logits; resource: no memory; internal
};

/// Called in the engine's thread, in order. Must not block or throw. May call submit and cancel.
using OnDelta = std::function<void(Delta)>;

struct RequestProblem {
  std::string field;    // name in the API: "prompt", "max_tokens", "top_p", "logit_bias", ..
  std::string message;  // text after "top_p = " or "--top-p ": "2, must be in (0, 1]"
};

/// Returns true if the prompt and one new token do not fit into `max_context` tokens. If max_tokens
/// is 0, only the prompt counts.
inline bool is_too_long(const Request& request, std::int64_t max_context) {
  const std::int64_t least = request.max_tokens > 0 ? 1 : 0;
  return static_cast<std::int64_t>(request.prompt.size()) > max_context - least;
}

/// Returns the first problem with a request or nullopt. `max_context` limits prompt and answer.
std::optional<RequestProblem> find_problem(const Request& request, std::int64_t vocab_size,
                                           std::int64_t max_context);

}  // namespace trireme::generate
