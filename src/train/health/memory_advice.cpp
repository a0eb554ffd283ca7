#include "train/health/memory_advice.hpp"

#include <functional>
#include <string_view>
#include <vector>

#include "core/number.hpp"
#include "train/cost/memory_formula.hpp"

namespace trireme::train {
namespace {

struct Change {
  std::string options;  // options as typed on the command line
  std::string price;
  std::function<void(RunConfig&, int& ranks)> make;
};

double rank_bytes(const RunConfig& config, int ranks, std::int64_t rows_per_sample) {
  UpdateFacts facts = facts_of_run(config, ranks);
  facts.rows *= rows_per_sample;
  return most_known_bytes(facts);
}

std::int64_t smallest_factor(std::int64_t number) {
  for (std::int64_t factor = 2; factor * factor <= number; ++factor) {
    if (number % factor == 0) return factor;
  }
  return number;
}

std::vector<Change> possible_changes(const RunConfig& config, int ranks) {
  std::vector<Change> changes;
  const parallel::ParallelConfig& parallel = config.parallel;
  const std::int64_t rows = config.train.micro_batch;
  const std::int64_t data = parallel::data_ranks(parallel, ranks);
  if (rows > 1) {
    const std::int64_t fewer = rows / smallest_factor(rows);
    changes.push_back({formatted("--train.micro_batch {}", fewer),
                       formatted("the same updates, in {} accumulation steps instead of {}",
                                 config.train.global_batch / (fewer * data),
                                 config.train.global_batch / (rows * data)),
                       [fewer](RunConfig& run, int&) { run.train.micro_batch = fewer; }});
  }
  if (parallel.recompute != "full") {
    changes.push_back({"--parallel.recompute full", "each block is computed twice",
                       [](RunConfig& run, int&) { run.parallel.recompute = "full"; }});
  }
  if (data * parallel.cp > 1 && parallel.zero < 3 && parallel.local_steps == 1) {
    for (const std::int64_t stage : {1, 3}) {
      if (stage <= parallel.zero) continue;
      changes.push_back({formatted("--parallel.zero {}", stage),
                         stage == 1 ? "no more communication" : "weights are gathered when used",
                         [stage](RunConfig& run, int&) { run.parallel.zero = stage; }});
    }
  }
  if (parallel.local_steps == 1) {
    changes.push_back({formatted("{} ranks with --parallel.zero 3", 2 * ranks),
                       "if they divide train.global_batch", [](RunConfig& run, int& count) {
                         run.parallel.zero = 3;
                         count *= 2;
                       }});
  }
  return changes;
}

}  // namespace

bool is_out_of_memory(const Error& error) {
  return error.kind() == ErrorKind::resource &&
         std::string_view(error.what()).find("out of memory") != std::string_view::npos;
}

std::string memory_advice(const RunConfig& config, int ranks, std::int64_t rows_per_sample) {
  const double now = rank_bytes(config, ranks, rows_per_sample);
  std::string text = formatted(
      "out of memory. By formula a rank holds {} in weights, gradients, optimizer state and activations of the trained model; on the same run, each of these lowers it:",
      format_bytes(now));
  for (const Change& change : possible_changes(config, ranks)) {
    RunConfig other = config;
    int other_ranks = ranks;
    change.make(other, other_ranks);
    const double then = rank_bytes(other, other_ranks, rows_per_sample);
    if (then < 0.99 * now)
      text += formatted("\n  {}: {} ({})", change.options, format_bytes(then), change.price);
  }
  return text;
}

}  // namespace trireme::train
