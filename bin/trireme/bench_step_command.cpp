#include "bin/trireme/bench_step_command.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "comm/factory.hpp"
#include "comm/nccl/nccl_backend.hpp"
#include "comm/scalars.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "train/audit/layout_record.hpp"
#include "train/run/run_keys.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kVocabulary = 6400;  // of a model that no tokenizer gives one
constexpr std::int64_t kLength = 512;
constexpr int kExitDiffers = 1;

std::string seconds_text(double seconds) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g s", seconds);
  return text.data();
}

}  // namespace

BenchStepCommand::BenchStepCommand(CommandLine& line, Launch& launch, Activity& activity)
    : launch_(launch), activity_(activity), keys_(make_run_keys(bench_.config)) {
  line.command("bench step", "time, communication and memory of a training step on a layout")
      .option("--steps", &bench_.steps, "N", "updates that are measured, after two to warm up")
      .flag("--audit", bench_.audit, "also count what ranks send; 1 unless that is the formulas'")
      .flag("--json", json_, "one JSON object instead of a table")
      .config(*keys_, [this](ConfigSet& keys) { complete(keys); })
      .example("mpirun -n 2 trireme bench step --model.preset minimind-2 --parallel.zero 3 --audit")
      .example("trireme bench step --config run.toml --json")
      .ranks(Ranks::all)
      .run([this] { return run(); });
}

void BenchStepCommand::complete(ConfigSet& keys) {
  RunConfig& config = bench_.config;
  if (config.model.num_heads == 0 && config.model.preset.empty())
    keys.set("model.preset", "tiny", "default");
  finish_run_keys(config, keys);
  if (bench_.steps < 1) keys.problems().add("--steps", bench_.steps, "must be 1 or more");
  if (config.train.seq_len == 0)
    config.train.seq_len =
        config.model.max_seq_len > 0 ? std::min(kLength, config.model.max_seq_len) : kLength;
  if (config.train.precision == "auto") config.train.precision = "fp32";
  keys.problems().throw_if_any();
  resolve(config.model, config.model.vocab_size > 0 ? config.model.vocab_size : kVocabulary);
  if (config.train.seq_len > config.model.max_seq_len) {
    keys.problems().add(
        "train.seq_len", config.train.seq_len,
        formatted("must be at most model.max_seq_len = {}", config.model.max_seq_len));
  }
}

int BenchStepCommand::run() {
  RunConfig& config = bench_.config;
  Communicator& world = launch_.world();
  const std::int64_t each = config.train.micro_batch * data_ranks(config.parallel, world.size());
  if (config.train.accumulation == 0) {
    config.train.accumulation =
        config.train.global_batch > 0 ? config.train.global_batch / each : 1;
    if (config.train.global_batch % each != 0 || config.train.accumulation == 0) {
      fail(ErrorKind::usage,
           "train.global_batch = {}, must be a multiple of {} (train.micro_batch {} x data ranks)",
           config.train.global_batch, each, config.train.micro_batch);
    }
  }
  set_cpu_threads(config.train.threads, launch_.info().local_size);
  bench_.device = choose_device(config.train.device, launch_.info().local_rank);
  std::unique_ptr<Communicator> on_device;
  if (bench_.device.is_cuda()) on_device = make_world("nccl", launch_.info(), {}, nccl_backends());
  const StepFigures figures =
      measure_step(world, on_device ? *on_device : world, activity_, bench_);
  if (world.rank() == 0) print(text(figures));
  return figures.differences.empty() ? kExitDone : kExitDiffers;
}

std::string BenchStepCommand::text(const StepFigures& figures) const {
  const RunConfig& config = bench_.config;
  if (json_) {
    Json json{{"ranks", launch_.world().size()},
              {"tokens_per_s", figures.tokens_per_s},
              {"step_time_s", figures.step_time_s},
              {"comm_s", figures.comm_s},
              {"comm_exposed_s", figures.comm_exposed_s},
              {"mem_peak_bytes", static_cast<std::int64_t>(figures.mem_peak_bytes)}};
    if (bench_.audit) {
      json["collectives"] = collectives_json(figures.collectives, figures.formulas);
      json["equal"] = figures.differences.empty();
      json["differences"] = figures.differences;
    }
    return json.dump(2) + "\n";
  }
  std::string table = formatted(
      "{} ranks, {} of {} tokens, {} micro-steps, {}, {} steps\n"
      "  step {}, {} tokens/s, communication {}, of it waited for {}, memory {} at most\n",
      launch_.world().size(), config.train.micro_batch, config.train.seq_len,
      config.train.accumulation, config.train.precision, bench_.steps,
      seconds_text(figures.step_time_s), cat(std::llround(figures.tokens_per_s)),
      seconds_text(figures.comm_s), seconds_text(figures.comm_exposed_s),
      format_bytes(figures.mem_peak_bytes));
  if (!bench_.audit) return table;
  for (const CollectiveRow& row : figures.collectives) {
    table += formatted("  {} of {} ({} ranks), {}: {} calls, {} bytes, {} sent\n", row.operation,
                       row.group, row.size, row.purpose, row.count, row.payload_bytes,
                       row.moved_bytes ? cat(*row.moved_bytes) : "unknown");
  }
  table += figures.differences.empty() ? "as the formulas say\n" : figures.differences;
  return table;
}

}  // namespace trireme
