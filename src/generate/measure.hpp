#pragma once
#include <cstdint>

#include "generate/load/load_model.hpp"

namespace trireme {

/// Texts that are made up: random prompts, all as long, the likeliest token each time.
struct GenerationLoad {
  std::int64_t batch = 1;
  std::int64_t prompt_tokens = 128;
  std::int64_t new_tokens = 128;  // of each text
};

struct GenerationFigures {
  std::int64_t threads = 0;         // of a CPU
  double prefill_tokens_per_s = 0;  // prompt tokens of all texts until all have their first token
  double decode_tokens_per_s = 0;   // of all texts, from there on
  double first_token_s = 0;         // of the first text
  std::int64_t weight_bytes = 0;    // that the next token of all texts reads once
  double memory_bytes_per_s = 0;    // measured: memory_read_rate
  double bandwidth_share = 0;       // weight bytes that the steps of decoding read, of that
};

/// The fastest of `repeats`, after one that is not counted; each part by itself.
GenerationFigures measure_generation(const LoadedModel& model, const GenerationLoad& load,
                                     std::int64_t repeats);

}  // namespace trireme
