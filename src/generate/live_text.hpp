#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "generate/answer_text.hpp"
#include "generate/kv_blocks.hpp"
#include "generate/request.hpp"
#include "generate/sampling.hpp"

namespace trireme {

/// A request while the engine has it.
struct LiveText {
  LiveText(std::uint64_t number, Request asked, OnDelta sink, const Tokenizer& tokenizer)
      : id(number),
        request(std::move(asked)),
        on_delta(std::move(sink)),
        tokens(request.prompt),
        answer(tokenizer, request.stop, request.skip_special_tokens),
        history(request.prompt) {
    if (request.prompt_logprobs) prompt_reports.push_back({tokens.front(), {}, {}});
  }

  std::uint64_t id;
  Request request;
  OnDelta on_delta;
  std::vector<std::uint32_t> tokens;  // the prompt, then what was drawn
  std::int64_t computed = 0;          // of the tokens, in the cache
  std::vector<KvBlocks::Block> blocks;
  KvBlocks::Chain chain = KvBlocks::kStart;  // up to the end of block `published` - 1
  std::size_t published = 0;                 // blocks that are, or that came from others
  bool started = false;                      // has been running
  bool finished = false;
  AnswerText answer;
  TokenHistory history;
  std::vector<TokenReport> prompt_reports;  // so far
  bool prompt_told = false;                 // they are with the caller

  [[nodiscard]] std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }

  [[nodiscard]] std::int64_t prompt_length() const {
    return static_cast<std::int64_t>(request.prompt.size());
  }

  [[nodiscard]] std::int64_t drawn() const { return length() - prompt_length(); }

  /// Its next step draws the next token from the last one alone.
  [[nodiscard]] bool drawing() const { return drawn() > 0 && computed + 1 == length(); }

  [[nodiscard]] bool prompt_reported() const {
    return !request.prompt_logprobs || prompt_told ||
           static_cast<std::int64_t>(prompt_reports.size()) == prompt_length();
  }

  /// Once; empty from then on, and where none are wanted.
  std::vector<TokenReport> take_prompt_reports() {
    prompt_told = true;
    return std::exchange(prompt_reports, {});
  }

  /// The logits behind token `index` are wanted.
  [[nodiscard]] bool wants_logits(std::int64_t index) const {
    if (index + 1 == length()) return request.max_tokens > 0;
    return !prompt_reported() && index + 1 >= static_cast<std::int64_t>(prompt_reports.size());
  }
};

}  // namespace trireme
