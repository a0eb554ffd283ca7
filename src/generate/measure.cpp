#include "generate/measure.hpp"

#include <ATen/Parallel.h>

#include <algorithm>
#include <limits>

#include "core/philox.hpp"
#include "core/timer.hpp"
#include "device/device.hpp"
#include "generate/answer_all.hpp"

namespace trireme::generate {
namespace {

std::vector<Request> random_requests(const LoadedModel& model, const GenerationLoad& load,
                                     std::uint64_t round) {
  const auto vocab = static_cast<std::uint64_t>(model.transformer->config().vocab_size);
  std::vector<Request> requests(static_cast<std::size_t>(load.batch));
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (std::int64_t k = 0; k < load.prompt_tokens; ++k) {
      // Each round uses another key, so that the cache contains no prefix of these prompts.
      const PhiloxWords words =
          philox4x32(philox_key(round, "bench generate"), static_cast<std::uint64_t>(k), i);
      requests[i].prompt.push_back(static_cast<std::uint32_t>(words[0] % vocab));
    }
    requests[i].max_tokens = load.new_tokens;
    requests[i].sampling.temperature = 0;
    requests[i].ignore_eos = true;
  }
  return requests;
}

/// Times of one round in seconds, from its start.
struct Round {
  double first_s = 0;      // first token of the first sequence
  double all_first_s = 0;  // first token of the last sequence
  double end_s = 0;
};

Round run_round(GenerationEngine& engine, std::vector<Request> requests) {
  Round round;
  const std::size_t all = requests.size();
  std::size_t begun = 0;
  const Timer timer;
  const std::vector<Answer> answers = answer_all(
      engine, std::move(requests), [&](std::size_t, const Delta& delta, const Answer& answer) {
        if (delta.tokens.empty() || answer.tokens.size() != delta.tokens.size()) return;
        if (++begun == 1) round.first_s = timer.seconds();
        if (begun == all) round.all_first_s = timer.seconds();
      });
  round.end_s = timer.seconds();
  for (const Answer& answer : answers) {
    if (answer.error) throw Error(*answer.error);
  }
  return round;
}

/// Returns the number of bytes of weights that one decoding step reads: transformer blocks, final
/// norm and head. Of the experts, only the experts that the tokens select count. A separate
/// embedding does not count, because a step reads only one of its rows per token.
std::int64_t bytes_of_a_step(const LoadedModel& model, std::int64_t batch) {
  const model::ModelConfig& config = model.transformer->config();
  std::int64_t numbers = config.num_active_parameters(batch);
  if (!config.tie_embeddings) numbers -= config.vocab_size * config.hidden_size;
  // With int8, nearly all of these numbers are in int8: norms and scales are below 1 %.
  if (model.transformer->int8_weight(model.transformer->head_weight()) != nullptr) return numbers;
  return numbers * static_cast<std::int64_t>(c10::elementSize(model.registry.dtypes().compute));
}

}  // namespace

GenerationFigures measure_generation(const LoadedModel& model, const GenerationLoad& load,
                                     std::int64_t repeats) {
  GenerationEngine engine(*model.transformer, model.tokenizer,
                          {.max_batch = load.batch,
                           .max_context = load.prompt_tokens + load.new_tokens,
                           .cuda_graph = load.cuda_graph});
  Round best;
  best.first_s = best.all_first_s = best.end_s = std::numeric_limits<double>::infinity();
  double decode_s = best.end_s;
  for (std::int64_t i = 0; i <= repeats; ++i) {
    const Round round =
        run_round(engine, random_requests(model, load, static_cast<std::uint64_t>(i)));
    if (i == 0) continue;
    best.first_s = std::min(best.first_s, round.first_s);
    best.all_first_s = std::min(best.all_first_s, round.all_first_s);
    decode_s = std::min(decode_s, round.end_s - round.all_first_s);
  }
  GenerationFigures figures;
  figures.threads = at::get_num_threads();
  figures.graph_launches = engine.counters().graph_launches;
  figures.first_token_s = best.first_s;
  figures.prefill_tokens_per_s =
      static_cast<double>(load.batch * load.prompt_tokens) / best.all_first_s;
  const double steps_per_s = static_cast<double>(load.new_tokens - 1) / decode_s;
  figures.decode_tokens_per_s = static_cast<double>(load.batch) * steps_per_s;
  figures.weight_bytes = bytes_of_a_step(model, load.batch);
  figures.memory_bytes_per_s = device::memory_read_rate(model.registry.device());
  figures.bandwidth_share =
      static_cast<double>(figures.weight_bytes) * steps_per_s / figures.memory_bytes_per_s;
  return figures;
}

}  // namespace trireme::generate
