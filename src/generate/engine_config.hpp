#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace trireme::model {

class Transformer;

}  // namespace trireme::model

namespace trireme::generate {

/// Checks EngineConfig::max_batch. Throws Error(usage) that names `option`, which sets it.
void check_batch(const char* option, std::int64_t batch);

/// Values of EngineConfig::cuda_graph.
inline constexpr std::array<std::string_view, 3> kCudaGraphModes{"auto", "true", "false"};

/// Help of the options and keys that set EngineConfig::cuda_graph.
inline constexpr const char* kCudaGraphHelp = "on a GPU, launch each decoding step as a CUDA graph";

/// Checks EngineConfig::cuda_graph. Throws Error(usage) that names the option.
void check_cuda_graph(const std::string& mode);

struct EngineConfig {
  std::int64_t kv_cache_mib = 0;  // memory for keys and values; 0: max_batch * 2,048 tokens
  std::int64_t max_batch = 32;    // maximum number of requests that run at once
  std::int64_t max_queue = 0;     // maximum number of waiting requests; 0: no limit
  std::int64_t max_context = 0;   // prompt and answer; 0: model.max_seq_len (the maximum)
  // prompt tokens per step if no sequence decodes; 0: 192 (CPU), 1,024 (GPU)
  std::int64_t prompt_tokens = 0;
  /// Prompt tokens per step while other sequences decode; 0: 24 (CPU), 256 (GPU).
  std::int64_t prompt_tokens_while_decoding = 0;
  /// Number of context tokens for which attention takes as long as the rest of a row. Prompt chunks
  /// after a long context are shortened with this value, so that all steps take about the same
  /// time. 0: chunks are not shortened. Exception: on a CPU, if prompt_tokens_while_decoding is
  /// also 0, the value is computed from the model.
  std::int64_t row_cost_tokens = 0;
  bool share_prefixes = true;
  /// Decoding steps as CUDA graphs (decode_graphs.hpp): auto, true or false. auto: if possible;
  /// true: like auto, with one warning if it is not possible.
  std::string cuda_graph = "auto";
  const char* context_option = "--max-context";  // option that sets max_context, for messages
};

/// The division of a model over ranks.
struct ModelSplit {
  int ranks = 1;
  std::int64_t layers = 0;  // the largest number of layers on a rank; 0: all layers
};

/// Replaces all zeros by defaults. The default budget is at most a quarter of the free memory. If a
/// single sequence needs more, the limit is half of the free memory. Throws Error(usage) if the
/// budget is too small for one sequence or a value is out of range.
EngineConfig resolved(EngineConfig config, model::Transformer& model, const ModelSplit& split);

std::int64_t num_kv_blocks(const EngineConfig& config, model::Transformer& model,
                           const ModelSplit& split);

/// Returns the threads that the steps of a model may choose from; 1 if they always use all. The fast
/// kernels of fp32 and bf16 give the same bits for any number. Several ranks share the cores.
int most_threads(const model::Transformer& model, const ModelSplit& split);

struct EngineCounters {
  std::int64_t running = 0;
  std::int64_t waiting = 0;
  std::int64_t kv_blocks_used = 0;  // by running requests, without cached prefixes
  std::int64_t kv_blocks_total = 0;
  std::int64_t preemptions = 0;
  std::int64_t prompt_tokens = 0;     // prompt tokens of started requests; counts each request once
  std::int64_t cached_tokens = 0;     // prompt tokens that were found in the cache
  std::int64_t generated_tokens = 0;  // including end tokens
  std::int64_t graph_launches = 0;    // decoding steps that were launched as a CUDA graph
};

}  // namespace trireme::generate
