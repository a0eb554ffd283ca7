#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "generate/answer_text.hpp"
#include "generate/cache/kv_blocks.hpp"
#include "generate/engine_config.hpp"
#include "generate/request.hpp"
#include "generate/sampling.hpp"

namespace trireme::generate {

/// The state of one request in the engine.
struct ActiveSequence {
  ActiveSequence(std::uint64_t number, Request asked, OnDelta sink,
                 const text::Tokenizer& tokenizer)
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
  std::vector<std::uint32_t> tokens;  // the prompt, then the generated tokens
  std::int64_t computed = 0;          // number of tokens with cached keys and values
  std::vector<KvBlocks::Block> blocks;
  KvBlocks::PrefixId chain = KvBlocks::kStart;  // prefix up to the end of block `published` - 1
  std::size_t published = 0;                    // leading blocks that are published or were shared
  bool started = false;                         // has been scheduled before
  std::int64_t cached_tokens = 0;               // prompt tokens in cached blocks at its start
  bool finished = false;
  AnswerText answer;
  TokenHistory history;
  std::vector<TokenReport> prompt_reports;  // reports of the prompt tokens that are computed so far
  std::vector<double> hidden_sum;           // sum over the first summed_tokens tokens, or empty
  std::int64_t summed_tokens = 0;
  bool prompt_reports_sent = false;  // prompt_reports were given to the caller

  [[nodiscard]] std::int64_t length() const { return static_cast<std::int64_t>(tokens.size()); }

  [[nodiscard]] std::int64_t prompt_length() const {
    return static_cast<std::int64_t>(request.prompt.size());
  }

  /// Returns the mean of the hidden states of all tokens; empty unless the request wants it. Throws
  /// Error(numeric) if it is not finite.
  [[nodiscard]] std::vector<float> mean_hidden() const;

  [[nodiscard]] std::int64_t drawn() const { return length() - prompt_length(); }

  /// Returns true if the next step only decodes: it computes one new token from the last one.
  [[nodiscard]] bool drawing() const { return drawn() > 0 && computed + 1 == length(); }

  /// Returns true if the hidden states after token `index` are needed. After a preemption, tokens
  /// are computed again that the sum already contains.
  [[nodiscard]] bool wants_hidden(std::int64_t index) const {
    return request.embedding && index >= summed_tokens;
  }

  /// Returns true if the cached keys and values of other sequences are enough for the next token.
  [[nodiscard]] bool may_share() const { return prompt_reported() && !wants_hidden(computed); }

  [[nodiscard]] bool prompt_reported() const {
    return !request.prompt_logprobs || prompt_reports_sent ||
           static_cast<std::int64_t>(prompt_reports.size()) == prompt_length();
  }

  /// Returns the reports once. Later calls and requests without prompt_logprobs get an empty list.
  std::vector<TokenReport> take_prompt_reports() {
    prompt_reports_sent = true;
    return std::exchange(prompt_reports, {});
  }

  /// Returns true if the logits after token `index` are needed.
  [[nodiscard]] bool wants_logits(std::int64_t index) const {
    if (index + 1 == length()) return request.max_tokens > 0;
    return !prompt_reported() && index + 1 >= static_cast<std::int64_t>(prompt_reports.size());
  }
};

/// The next tokens of one sequence to compute.
struct SequenceRows {
  ActiveSequence* text = nullptr;
  std::int64_t rows = 0;
};

/// Decides which sequences run and which wait, and assigns KV blocks. Not thread-safe.
///
/// Sequences run in the order of arrival. If a sequence needs a block and none is free, the
/// sequence that arrived last is preempted: it frees its blocks and waits at the front.
class Schedule {
 public:
  /// `config` must be resolved.
  Schedule(const EngineConfig& config, std::int64_t blocks);

  void add(std::unique_ptr<ActiveSequence> text);

  /// Starts waiting sequences, finds shared prefixes, assigns blocks and returns the rows of the
  /// next step. The result is empty only if no sequence is left. The caller must compute these rows
  /// or call forget().
  std::vector<SequenceRows> next_step();

  [[nodiscard]] std::int64_t blocks_reached() const { return blocks_.reached(); }

  /// Discards the content of all blocks after a failed step. Running sequences are computed again.
  void forget();

  void remove_finished();

  void for_each(const std::function<void(ActiveSequence&)>& call);

  /// Returns all counters except generated_tokens.
  [[nodiscard]] EngineCounters counters() const;

 private:
  void start_waiting();
  /// Adds cached blocks that already hold the sequence's next tokens.
  void share_blocks(ActiveSequence& text);
  /// Allocates blocks for `rows` more tokens of running sequence `i`, or as many as are free.
  /// Returns the number of rows that fit.
  std::int64_t reserve_descriptors(std::size_t i, std::int64_t rows);
  /// rows_behind returns the number of rows after `before` tokens that cost as much time as `rows`
  /// rows at the beginning of a sequence. first_rows_for computes the inverse.
  [[nodiscard]] std::int64_t rows_behind(std::int64_t rows, std::int64_t before) const;
  [[nodiscard]] std::int64_t first_rows_for(std::int64_t rows, std::int64_t before) const;
  /// Publishes the blocks that are full once `rows` more tokens are computed.
  void publish_blocks(ActiveSequence& text, std::int64_t rows);
  void give_back_blocks(ActiveSequence& text);
  void preempt_last();

  EngineConfig config_;
  KvBlocks blocks_;
  std::vector<std::unique_ptr<ActiveSequence>> running_;
  std::deque<std::unique_ptr<ActiveSequence>> waiting_;
  EngineCounters counters_;
};

}  // namespace trireme::generate
