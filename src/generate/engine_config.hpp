#pragma once
#include <cstdint>

namespace trireme {

class Transformer;

/// Throws Error(usage) naming `option`, by which the user gives EngineConfig::max_batch.
void check_batch(const char* option, std::int64_t batch);

struct EngineConfig {
  std::int64_t kv_cache_mib = 0;  // of keys and values; 0: room for max_batch texts of 2,048 tokens
  std::int64_t max_batch = 32;    // requests that run at once
  std::int64_t max_queue = 0;     // requests that wait; 0: any number
  std::int64_t max_context = 0;   // prompt and text; 0: model.max_seq_len, which is the most
  std::int64_t prompt_tokens = 0;  // of a step while no text is drawn; 0: 192, on a GPU 1,024
  /// Beside texts, whose next tokens wait; 0: 24, on a GPU 256.
  std::int64_t prompt_tokens_beside = 0;
  /// Tokens before a row of those that cost as much as the row itself: behind them fewer are taken, so
  /// that no step is longer than the first ones. 0: as many everywhere, or where the number above is
  /// chosen, of the model (on a CPU).
  std::int64_t row_cost_tokens = 0;
  bool share_prefixes = true;
  const char* context_option = "--max-context";  // how the user lowers max_context, for messages
};

/// Without zeros. The budget is at most a quarter of the memory that is free where it is not given, half
/// where one text needs that. Throws Error(usage) for a budget without room for one text, and for what
/// is out of range.
EngineConfig resolved(EngineConfig config, Transformer& model);

/// Blocks that a resolved budget holds.
std::int64_t num_kv_blocks(const EngineConfig& config, Transformer& model);

struct EngineCounters {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t kv_blocks_used = 0;  // by running requests; those kept for a prefix alone are free
  std::int64_t kv_blocks_total = 0;
  std::int64_t preemptions = 0;
  std::int64_t prompt_tokens = 0;     // of requests that started, each once
  std::int64_t cached_tokens = 0;     // of these, found in the cache
  std::int64_t generated_tokens = 0;  // drawn, end tokens too
};

}  // namespace trireme
