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

/// Next tokens of one text, behind those that are computed.
struct TextRows {
  LiveText* text = nullptr;
  std::int64_t rows = 0;
};

/// Decides which texts run and which wait, and who has which blocks of the cache. In one thread.
///
/// Texts run in the order in which they came. Where a text needs a block and none is left, the one
/// that came last gives up its own and waits at the front.
class Schedule {
 public:
  /// `config` as resolved.
  Schedule(const EngineConfig& config, std::int64_t blocks);

  void add(std::unique_ptr<LiveText> text);

  /// Returns the rows of the next step: starts waiting texts, finds shared prefixes, gives out blocks.
  /// Empty only if no text is left. The caller computes these rows, or calls `forget`.
  std::vector<TextRows> next_step();

  /// KvBlocks::reached.
  [[nodiscard]] std::int64_t blocks_reached() const { return blocks_.reached(); }

  /// The step did not happen: what was to be in blocks is not there. Texts that run are computed again.
  void forget();

  /// Takes out texts that are finished.
  void remove_finished();

  /// All texts, running and waiting.
  void for_each(const std::function<void(LiveText&)>& call);

  /// All fields but generated_tokens.
  [[nodiscard]] EngineCounters counters() const;

 private:
  void start_waiting();
  /// Takes blocks that hold the text's next tokens already.
  void share_blocks(LiveText& text);
  /// Blocks for `rows` more tokens of running text `i`, or as many as there are. Returns the rows.
  std::int64_t make_room(std::size_t i, std::int64_t rows);
  /// Rows behind `before` tokens that take as long as `rows` first ones of a text, and back.
  [[nodiscard]] std::int64_t rows_behind(std::int64_t rows, std::int64_t before) const;
  [[nodiscard]] std::int64_t first_rows_for(std::int64_t rows, std::int64_t before) const;
  /// Publishes the blocks that others may share when `rows` more tokens are computed.
  void publish_blocks(LiveText& text, std::int64_t rows);
  void give_back_blocks(LiveText& text);
  void preempt_last();

  EngineConfig config_;
  KvBlocks blocks_;
  std::vector<std::unique_ptr<LiveText>> running_;
  std::deque<std::unique_ptr<LiveText>> waiting_;
  EngineCounters counters_;
};

}  // namespace trireme
