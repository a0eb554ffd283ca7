#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "bin/trireme/commands.hpp"
#include "comm/agree.hpp"
#include "comm/factory.hpp"
#include "comm/nccl/nccl_backend.hpp"
#include "comm/scalars.hpp"
#include "core/files/json_lines.hpp"
#include "core/join.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "data/loader.hpp"
#include "device/device.hpp"
#include "train/audit/layout_record.hpp"
#include "train/config/layout.hpp"
#include "train/config/open_values.hpp"
#include "train/health/memory_need.hpp"
#include "train/planner/config_json.hpp"
#include "train/start/resolve_config.hpp"
#include "train/start/run_keys.hpp"
#include "train/verify/bench_step.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kVocabulary = 6400;  // used if model.vocab_size is not set
constexpr std::int64_t kLength = 512;
constexpr int kExitDiffers = 1;

struct BenchStepSettings {
  train::StepBench bench;
  std::unique_ptr<config::ConfigSet> keys = train::make_run_keys(bench.config);
  bool json = false;
};

void complete(BenchStepSettings& settings, config::ConfigSet& keys) {
  train::RunConfig& config = settings.bench.config;
  train::TrainConfig& train = config.train;
  if (config.model.num_heads == 0 && config.model.preset.empty())
    keys.set("model.preset", "tiny", "default");
  train::finish_run_keys(config, keys);
  if (settings.bench.steps < 1)
    keys.problems().add("--steps", settings.bench.steps, "must be 1 or more");
  if (train.seq_len != 0 && train.seq_len < 2)
    keys.problems().add("train.seq_len", train.seq_len, "must be 2 or more");
}

/// Resolves the settings that depend on the number of ranks: model shape, batch sizes, device.
/// Throws Error(usage) if `ranks` ranks cannot train this layout, Error(resource) if memory is too
/// small.
void resolve_settings(BenchStepSettings& settings, const comm::LaunchInfo& launch, int ranks) {
  train::RunConfig& config = settings.bench.config;
  train::TrainConfig& train = config.train;
  model::resolve(config.model, config.model.vocab_size > 0 ? config.model.vocab_size : kVocabulary);
  if (train.seq_len == 0) train.seq_len = std::min(kLength, config.model.max_seq_len);
  if (train.seq_len > config.model.max_seq_len) {
    fail(ErrorKind::usage, "train.seq_len = {}, must be at most model.max_seq_len = {}",
         train.seq_len, config.model.max_seq_len);
  }
  Problems problems;
  train::check_layout(config.parallel,
                      {config.model, {train.seq_len}, ranks, std::nullopt, train.fp8_mode()},
                      problems);
  train::check_fp8_linears(config, problems);
  model::check_targets(config.lora, config.model, problems);
  problems.throw_if_any();
  const int data = parallel::data_ranks(config.parallel, ranks);
  if (train.global_batch == 0 && train.accumulation == 0) train.accumulation = 1;
  train::fill_open_values(config, {data}, problems);
  problems.throw_if_any();
  train.accumulation = data::accumulation_steps_of(train.global_batch, train.micro_batch, data);
  train::check_micro_batches(config.parallel, train.accumulation);
  settings.bench.device = device::choose_device(train.device, launch.local_rank);
  train::check_fp8_device(train, settings.bench.device);
  train::check_free_memory(config, launch, ranks, *settings.keys);
}

void warn_of_idle_keys(const BenchStepSettings& settings) {
  const std::string idle = train::keys_without_effect(settings.bench.config.parallel);
  if (!idle.empty()) log::warn(idle);
  std::vector<std::string> unread;
  for (const std::string& key : settings.keys->keys())
    if ((key.starts_with("data.") || key.starts_with("checkpoint.")) && settings.keys->is_set(key))
      unread.push_back(key);
  if (!unread.empty())
    log::warn(
        formatted("keys without effect, because this command uses synthetic tokens and weights: {}",
                  joined(unread, ", ")));
}

std::string text(const BenchStepSettings& settings, const comm::Launch& launch,
                 const train::StepFigures& figures) {
  const train::RunConfig& config = settings.bench.config;
  if (settings.json) {
    Json json{{"ranks", launch.world().size()},
              {"ranks_per_node", launch.info().local_size},
              {"cores", std::thread::hardware_concurrency()},
              {"device", settings.bench.device.is_cpu() ? "cpu" : "cuda"},
              {"model", planner::config_json(config.model)},
              {"parallel", planner::config_json(config.parallel)},
              {"optimizer", config.optim.name},
              {"parameters", static_cast<std::int64_t>(config.model.num_parameters_wide())},
              {"precision", config.train.precision},
              {"micro_batch", config.train.micro_batch},
              {"seq_len", config.train.seq_len},
              {"micro_steps", config.train.accumulation},
              {"steps", settings.bench.steps},
              {"tokens_per_s", figures.tokens_per_s},
              {"step_time_s", figures.step_time_s},
              {"comm_s", figures.comm_s},
              {"comm_exposed_s", figures.comm_exposed_s},
              {"mem_peak_bytes", static_cast<std::int64_t>(figures.mem_peak_bytes)},
              {"mem_before_bytes", static_cast<std::int64_t>(figures.mem_before_bytes)},
              {"mem_counted_bytes", static_cast<std::int64_t>(figures.mem_counted_bytes)}};
    if (settings.bench.audit) {
      json["collectives"] = train::collectives_json(figures.collectives, figures.formulas);
      json["equal"] = figures.differences.empty();
      json["differences"] = figures.differences;
    }
    return json_line(json);
  }
  std::string table = formatted(
      "{} ranks, micro batch of {} x {} tokens, {} accumulation steps, {}, {} steps\n"
      "  step {}, {} tokens/s, communication {} (exposed {}), peak memory {}\n",
      launch.world().size(), config.train.micro_batch, config.train.seq_len,
      config.train.accumulation, config.train.precision, settings.bench.steps,
      format_seconds(figures.step_time_s), cat(std::llround(figures.tokens_per_s)),
      format_seconds(figures.comm_s), format_seconds(figures.comm_exposed_s),
      format_bytes(figures.mem_peak_bytes));
  if (!settings.bench.audit) return table;
  for (const train::CollectiveRow& row : figures.collectives) {
    table += formatted("  {} of {} ({} ranks), {}: {} calls, {} bytes, {} sent\n", row.operation,
                       row.group, row.size, row.purpose, row.count, row.payload_bytes,
                       row.moved_bytes ? cat(*row.moved_bytes) : "unknown");
  }
  table += figures.differences.empty() ? "all counts equal the formulas\n" : figures.differences;
  return table;
}

int run(BenchStepSettings& settings, comm::Launch& launch, comm::Activity& activity) {
  const train::RunConfig& config = settings.bench.config;
  comm::Communicator& world = launch.world();
  device::set_cpu_threads(config.train.threads, launch.info().local_size);
  device::keep_freed_memory(config.parallel.zero > 0);
  comm::all_or_none(world, [&] { resolve_settings(settings, launch.info(), world.size()); });
  if (world.rank() == 0) warn_of_idle_keys(settings);
  std::unique_ptr<comm::Communicator> on_device;
  if (settings.bench.device.is_cuda())
    on_device = comm::make_world("nccl", launch.info(), {}, comm::nccl_backends());
  const train::StepFigures figures =
      train::measure_step(world, on_device ? *on_device : world, activity, settings.bench);
  if (world.rank() == 0) print(text(settings, launch, figures));
  return figures.differences.empty() ? kExitDone : kExitDiffers;
}

}  // namespace

void add_bench_step_command(config::CommandLine& line, comm::Launch& launch,
                            comm::Activity& activity) {
  const auto settings = std::make_shared<BenchStepSettings>();
  line.command("bench step",
               "measure time, communication and memory of a training step on a layout")
      .option("--steps", &settings->bench.steps, "N",
              "measured optimizer steps, after two warm-up steps")
      .flag("--audit", settings->bench.audit,
            "also count the bytes that ranks send; exit code 1 if they differ from the formulas")
      .flag("--json", settings->json, "print one JSON document on one line instead of a table")
      .config(*settings->keys, [settings](config::ConfigSet& keys) { complete(*settings, keys); })
      .example("mpirun -n 2 trireme bench step --model.preset minimind-2 --parallel.zero 3 --audit")
      .example("trireme bench step --config run.toml --json")
      .ranks(config::Ranks::all)
      .run([settings, &launch, &activity] { return run(*settings, launch, activity); });
}

}  // namespace trireme
