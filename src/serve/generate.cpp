#include "serve/generate.hpp"

#include <algorithm>

#include "core/error.hpp"

namespace trireme {
namespace {

Microbatch make_batch(const std::vector<std::int64_t>& tokens, std::int64_t first_position,
                      at::Device device) {
  const auto length = static_cast<std::int64_t>(tokens.size());
  Microbatch batch;
  batch.tokens = at::tensor(tokens, at::kLong).view({1, length}).to(device);
  batch.positions =
      at::arange(first_position, first_position + length, at::kLong).view({1, length}).to(device);
  batch.samples = at::zeros({1}, at::kLong).to(device);
  return batch;
}

}  // namespace

std::vector<std::uint32_t> encode_prompt(const Tokenizer& tokenizer, std::string_view prompt,
                                         std::int64_t max_seq_len) {
  std::vector<std::uint32_t> ids = tokenizer.encode(prompt);
  if (const auto bos = tokenizer.bos_id(); ids.empty() && bos) ids.push_back(*bos);
  if (ids.empty())
    fail(ErrorKind::usage, "the prompt is empty, and the tokenizer has no beginning-of-text token");
  if (static_cast<std::int64_t>(ids.size()) >= max_seq_len) {
    fail(ErrorKind::usage,
         "the prompt has {} tokens, the model takes less than {} (model.max_seq_len)", ids.size(),
         max_seq_len);
  }
  return ids;
}

std::vector<std::uint32_t> generate(Transformer& model, const std::vector<std::uint32_t>& prompt,
                                    std::span<const std::uint32_t> end_tokens,
                                    const GenerateOptions& options,
                                    const std::function<void(std::uint32_t)>& on_token) {
  const auto prompt_length = static_cast<std::int64_t>(prompt.size());
  const std::int64_t longest = model.config().max_seq_len;
  TRIREME_ASSERT(0 < prompt_length && prompt_length < longest);
  const std::int64_t capacity =
      prompt_length + std::min(options.max_tokens, longest - prompt_length);
  KvCache cache = model.make_cache(1, capacity);
  std::vector<std::int64_t> next(prompt.begin(), prompt.end());
  std::vector<std::uint32_t> produced;
  while (static_cast<std::int64_t>(produced.size()) < options.max_tokens &&
         cache.length + static_cast<std::int64_t>(next.size()) <= capacity) {
    const at::Tensor logits =
        model.next_logits(make_batch(next, cache.length, model.registry().device()), cache);
    const auto token = static_cast<std::uint32_t>(
        sample_token(logits.select(0, 0).to(at::kCPU), options.sampling, produced.size()));
    if (std::find(end_tokens.begin(), end_tokens.end(), token) != end_tokens.end()) break;
    produced.push_back(token);
    on_token(token);
    next = {static_cast<std::int64_t>(token)};
  }
  return produced;
}

}  // namespace trireme
