#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "bin/trireme/bench_settings.hpp"
#include "bin/trireme/commands.hpp"
#include "core/files/json_lines.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "device/device.hpp"
#include "train/verify/bench_ladder.hpp"

namespace trireme {
namespace {

std::string rounded(double value, int digits) {
  std::ostringstream out;
  out << std::setprecision(digits) << value;
  return std::move(out).str();
}

Json ladder_json(const BenchSettings& settings, int ranks,
                 const std::vector<train::LadderRung>& rungs) {
  const train::TrainConfig& train = settings.bench.config.train;
  Json list = Json::array();
  for (const train::LadderRung& rung : rungs)
    list.push_back({{"off", rung.off},
                    {"step_time_s", rung.step_time_s},
                    {"slowdown", rung.step_time_s / rungs.front().step_time_s},
                    {"loss", rung.loss},
                    {"loss_delta", rung.loss_delta},
                    {"grad_norm_delta", rung.grad_norm_delta}});
  return {{"ranks", ranks},
          {"device", device::device_name(settings.bench.device)},
          {"precision", train.precision},
          {"micro_batch", train.micro_batch},
          {"seq_len", train.seq_len},
          {"micro_steps", train.accumulation},
          {"steps", settings.bench.steps},
          {"rungs", list}};
}

std::string ladder_table(const BenchSettings& settings, int ranks,
                         const std::vector<train::LadderRung>& rungs) {
  const train::TrainConfig& train = settings.bench.config.train;
  std::string table = formatted(
      "{} ranks, {}, micro batch of {} x {} tokens, {} accumulation steps, {}, {} rounds\n", ranks,
      device::device_name(settings.bench.device), train.micro_batch, train.seq_len,
      train.accumulation, train.precision, settings.bench.steps);
  for (const train::LadderRung& rung : rungs) {
    table += formatted(
        "  off: {}: step {}, {} x, loss {}, loss delta {}, gradient norm delta {}\n", rung.off,
        format_seconds(rung.step_time_s), rounded(rung.step_time_s / rungs.front().step_time_s, 3),
        rounded(rung.loss, 7), rounded(rung.loss_delta, 3), rounded(rung.grad_norm_delta, 3));
  }
  return table;
}

int run_ladder(BenchSettings& settings, comm::Launch& launch) {
  comm::Communicator& world = launch.world();
  const auto on_device = settings.prepare(launch);
  const auto rungs = train::measure_ladder(world, on_device ? *on_device : world, settings.bench);
  if (world.rank() != 0) return kExitDone;
  print(settings.json ? json_line(ladder_json(settings, world.size(), rungs))
                      : ladder_table(settings, world.size(), rungs));
  return kExitDone;
}

}  // namespace

void add_bench_ladder_command(config::CommandLine& line, comm::Launch& launch) {
  const auto settings = std::make_shared<BenchSettings>();
  line.command("bench ladder", "measure a training step with each fast path off in turn")
      .option("--steps", &settings->bench.steps, "N", "measured rounds, after one warm-up round")
      .flag("--json", settings->json, "print one JSON document on one line instead of a table")
      .config(*settings->keys,
              [settings](config::ConfigSet& keys) {
                settings->complete(keys);
                if (!settings->bench.config.train.fused_ops)
                  keys.problems().add("train.fused_ops", false,
                                      "must be true: bench ladder turns fast paths off by itself");
              })
      .example("trireme bench ladder --model.preset minimind-2 --train.precision bf16")
      .example("trireme bench ladder --config run.toml --json")
      .ranks(config::Ranks::all)
      .run([settings, &launch] { return run_ladder(*settings, launch); });
}

}  // namespace trireme
