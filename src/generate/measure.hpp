#pragma once
#include <cstdint>
#include <string>

#include "generate/load/load_model.hpp"

namespace trireme::generate {

/// A synthetic load: random prompts of equal length, greedy decoding.
struct GenerationLoad {
  std::int64_t batch = 1;
  std::int64_t prompt_tokens = 128;
  std::int64_t new_tokens = 128;    // per sequence
  std::string cuda_graph = "auto";  // EngineConfig::cuda_graph
};

struct GenerationFigures {
  std::int64_t threads = 0;  // CPU threads
  // prompt tokens of all sequences / time until all sequences have their first token
  double prefill_tokens_per_s = 0;
  double decode_tokens_per_s = 0;   // generated tokens of all sequences per second, after that time
  double first_token_s = 0;         // time to the first token of the first sequence
  std::int64_t weight_bytes = 0;    // weights that one decoding step reads
  double memory_bytes_per_s = 0;    // measured with memory_read_rate
  std::int64_t graph_launches = 0;  // decoding steps launched as a CUDA graph, in all rounds
  double bandwidth_share = 0;       // share of memory_bytes_per_s that is used to read the weights
};

/// Runs one warmup round and `repeats` measured rounds. Returns the best value of each figure, even
/// if the best values come from different rounds.
GenerationFigures measure_generation(const LoadedModel& model, const GenerationLoad& load,
                                     std::int64_t repeats);

}  // namespace trireme::generate
