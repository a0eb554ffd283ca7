#pragma once
#include <cstdint>

#include "generate/load/load_model.hpp"

namespace trireme::generate {

/// A synthetic load: random prompts of equal length, greedy decoding.
struct GenerationLoad {
  std::int64_t batch = 1;
  std::int64_t prompt_tokens = 128;
  std::int64_t new_tokens = 128;  // per sequence
};

struct GenerationFigures {
  std::int64_t threads = 0;         // CPU threads
  double prefill_tokens_per_s = 0;  // prompt tokens of all sequences / time to the last first token
  double decode_tokens_per_s = 0;   // of all sequences, after that time
  double first_token_s = 0;         // time to the first token of the first sequence
  std::int64_t weight_bytes = 0;    // weights that one decoding step reads
  double memory_bytes_per_s = 0;    // measured with memory_read_rate
  double bandwidth_share = 0;       // share of memory_bytes_per_s that reading the weights uses
};

/// Returns the best of `repeats` rounds after one warmup round, separately for each figure.
GenerationFigures measure_generation(const LoadedModel& model, const GenerationLoad& load,
                                     std::int64_t repeats);

}  // namespace trireme::generate
