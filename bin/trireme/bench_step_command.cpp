#include <cmath>
#include <nlohmann/json.hpp>
#include <thread>

#include "bin/trireme/bench_settings.hpp"
#include "bin/trireme/commands.hpp"
#include "core/files/json_lines.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "device/device.hpp"
#include "train/audit/layout_record.hpp"
#include "train/planner/config_json.hpp"

namespace trireme {
namespace {

constexpr int kExitDiffers = 1;

struct BenchStepSettings : BenchSettings {
  bool ops = false;
};

double gflops_of(const train::WorkTime& work) {
  return work.flops > 0 ? work.flops / work.seconds / 1e9 : 0;
}

Json work_json(const train::StepFigures& figures) {
  Json rows = Json::array();
  for (const train::WorkTime& work : figures.work)
    rows.push_back({{"name", work.name},
                    {"ms", 1e3 * work.seconds},
                    {"share", work.seconds / figures.step_time_s},
                    {"gflops", gflops_of(work)}});
  return rows;
}

std::string text(const BenchStepSettings& settings, const comm::Launch& launch,
                 const train::StepFigures& figures, const train::StepCeiling& ceiling) {
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
              {"clock_tokens_per_s", figures.clock_tokens_per_s},
              {"step_time_s", figures.step_time_s},
              {"processor", device::device_name(settings.bench.device)},
              {"peak_gflops", ceiling.peak_flops / 1e9},
              {"flops_matmul", figures.flops_matmul},
              {"flops_attention", figures.flops_attention},
              {"ceiling_tokens_per_s", ceiling.tokens_per_s},
              {"ceiling_share", ceiling.share},
              {"comm_s", figures.comm_s},
              {"comm_exposed_s", figures.comm_exposed_s},
              {"mem_peak_bytes", static_cast<std::int64_t>(figures.mem_peak_bytes)},
              {"mem_before_bytes", static_cast<std::int64_t>(figures.mem_before_bytes)},
              {"mem_counted_bytes", static_cast<std::int64_t>(figures.mem_counted_bytes)}};
    if (settings.ops) json["ops"] = work_json(figures);
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
  table += formatted(
      "  {} GFLOP of matrix products and {} of attention on each rank; at the peak of {} GFLOP/s a "
      "rank: {} tokens/s ({} % reached)\n",
      cat(std::llround(figures.flops_matmul / 1e9)),
      cat(std::llround(figures.flops_attention / 1e9)), cat(std::llround(ceiling.peak_flops / 1e9)),
      cat(std::llround(ceiling.tokens_per_s)), cat(std::llround(100 * ceiling.share)));
  if (settings.ops) {
    for (const train::WorkTime& work : figures.work)
      table += formatted("  {}: {} ({} %), {} GFLOP/s\n", work.name, format_seconds(work.seconds),
                         cat(std::llround(100 * work.seconds / figures.step_time_s)),
                         cat(std::llround(gflops_of(work))));
  }
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
  comm::Communicator& world = launch.world();
  const auto on_device = settings.prepare(launch);
  // LibTorch starts the work of a GPU and does not wait for it, so a thread cannot measure it.
  if (settings.ops && !settings.bench.device.is_cpu())
    fail(ErrorKind::usage,
         "--ops measures only CPUs, but the device is a GPU. Set train.device = cpu, or use "
         "train.profile.");
  const train::StepFigures figures =
      train::measure_step(world, on_device ? *on_device : world, activity, settings.bench);
  const train::StepCeiling ceiling = train::measure_ceiling(world, settings.bench, figures);
  if (world.rank() == 0) print(text(settings, launch, figures, ceiling));
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
      .flag("--ops", settings->ops,
            "also list the time of each kind of work in the median step (on a CPU)")
      .flag("--json", settings->json, "print one JSON document on one line instead of a table")
      .config(*settings->keys, [settings](config::ConfigSet& keys) { settings->complete(keys); })
      .example("mpirun -n 2 trireme bench step --model.preset minimind-2 --parallel.zero 3 --audit")
      .example("trireme bench step --config run.toml --json")
      .ranks(config::Ranks::all)
      .run([settings, &launch, &activity] { return run(*settings, launch, activity); });
}

}  // namespace trireme
