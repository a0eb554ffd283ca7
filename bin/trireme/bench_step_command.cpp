#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "bin/trireme/bench_settings.hpp"
#include "bin/trireme/commands.hpp"
#include "core/files/json_lines.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "train/audit/layout_record.hpp"
#include "train/planner/config_json.hpp"

namespace trireme {
namespace {

constexpr int kExitDiffers = 1;

std::string text(const BenchSettings& settings, const comm::Launch& launch,
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

int run(BenchSettings& settings, comm::Launch& launch, comm::Activity& activity) {
  comm::Communicator& world = launch.world();
  const auto on_device = settings.prepare(launch);
  const train::StepFigures figures =
      train::measure_step(world, on_device ? *on_device : world, activity, settings.bench);
  if (world.rank() == 0) print(text(settings, launch, figures));
  return figures.differences.empty() ? kExitDone : kExitDiffers;
}

}  // namespace

void add_bench_step_command(config::CommandLine& line, comm::Launch& launch,
                            comm::Activity& activity) {
  const auto settings = std::make_shared<BenchSettings>();
  line.command("bench step",
               "measure time, communication and memory of a training step on a layout")
      .option("--steps", &settings->bench.steps, "N",
              "measured optimizer steps, after two warm-up steps")
      .flag("--audit", settings->bench.audit,
            "also count the bytes that ranks send; exit code 1 if they differ from the formulas")
      .flag("--json", settings->json, "print one JSON document on one line instead of a table")
      .config(*settings->keys, [settings](config::ConfigSet& keys) { settings->complete(keys); })
      .example("mpirun -n 2 trireme bench step --model.preset minimind-2 --parallel.zero 3 --audit")
      .example("trireme bench step --config run.toml --json")
      .ranks(config::Ranks::all)
      .run([settings, &launch, &activity] { return run(*settings, launch, activity); });
}

}  // namespace trireme
