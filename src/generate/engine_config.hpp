#pragma once
#include <cstdint>

namespace trireme::model {

class Transformer;

}  // namespace trireme::model

namespace trireme::generate {

/// Checks EngineConfig::max_batch. Throws Error(usage) that names `option`, which sets it.
void check_batch(const char* option, std::int64_t batch);

struct EngineConfig {
  std::int64_t kv_cache_mib = 0;   // memory for keys and values; 0: max_batch * 2,048 tokens
  std::int64_t max_batch = 32;     // most requests that run at once
  std::int64_t max_queue = 0;      // most requests that wait; 0: no limit
  std::int64_t max_context = 0;    // prompt and answer; 0: model.max_seq_len (the maximum)
  std::int64_t prompt_tokens = 0;  // per step without decoding; 0: 192 (CPU), 1,024 (GPU)
  /// Prompt tokens per step while other sequences decode; 0: 24 (CPU), 256 (GPU).
  std::int64_t prompt_tokens_while_decoding = 0;
  /// Number of context tokens that cost as much as one row itself. Prompt chunks after a long
  /// context are shortened accordingly, so that all steps take about as long. 0: chunks are not
  /// shortened; on a CPU, if prompt_tokens_while_decoding is 0 too, the value is derived from the model.
  std::int64_t row_cost_tokens = 0;
  bool share_prefixes = true;
  const char* context_option = "--max-context";  // option that sets max_context, for messages
};

/// Replaces all zeros by defaults. The default budget is at most a quarter of the free memory, or
/// half of it if a single sequence needs that much. Throws Error(usage) if the budget is too small
/// for one sequence or a value is out of range.
EngineConfig resolved(EngineConfig config, model::Transformer& model);

std::int64_t num_kv_blocks(const EngineConfig& config, model::Transformer& model);

struct EngineCounters {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t kv_blocks_used = 0;  // by running requests, without cached prefixes
  std::int64_t kv_blocks_total = 0;
  std::int64_t preemptions = 0;
  std::int64_t prompt_tokens = 0;     // of started requests, each request once
  std::int64_t cached_tokens = 0;     // prompt tokens that were found in the cache
  std::int64_t generated_tokens = 0;  // including end tokens
};

}  // namespace trireme::generate
