#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "generate/engine_config.hpp"
#include "generate/kv_blocks.hpp"
#include "generate/live_text.hpp"

namespace trireme {

/// Next tokens of one text, behind those that are computed.
struct TextRows {
  LiveText* text = nullptr;
  std::int64_t rows = 0;
};

/// Which texts run, which wait, and who has which blocks of the cache. In one thread.
///
/// Texts run in the order in which they came. Where a text needs a block and none is left, the one
/// that came last gives up its own and waits at the front.
class Schedule {
 public:
  /// `config` as resolved.
  Schedule(const EngineConfig& config, std::int64_t blocks);

  void add(std::unique_ptr<LiveText> text);

  /// What the next step computes: starts waiting texts, finds shared beginnings, gives out blocks.
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
  /// What others may share when `rows` more tokens are computed.
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
