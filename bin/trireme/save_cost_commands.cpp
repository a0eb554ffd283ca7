/// Commands that find out how often to save checkpoints.

#include "bin/trireme/commands.hpp"
#include "checkpoint/bench/measure.hpp"
#include "checkpoint/upkeep/plan_interval.hpp"
#include "core/error.hpp"
#include "core/process/run_main.hpp"

namespace trireme {
namespace {

struct BenchCheckpointSettings {
  std::string folder = "checkpoint-bench";
  std::int64_t bytes = std::int64_t{1} << 30;
  std::int64_t repeats = 5;
  bool json = false;
};

std::string run(const BenchCheckpointSettings& settings, Communicator& world) {
  if (settings.bytes < 1) fail(ErrorKind::usage, "--bytes {}, must be at least 1", settings.bytes);
  const MeasuredCheckpoint measured = measure_checkpoint(
      settings.folder,
      {.bytes = static_cast<std::uint64_t>(settings.bytes), .repeats = settings.repeats}, world);
  return settings.json ? measured_json(measured) : measured_text(measured);
}

}  // namespace

void add_save_cost_commands(CommandLine& line, const WorldSource& world) {
  const auto settings = std::make_shared<BenchCheckpointSettings>();
  line.group("bench", "measure the speed of this machine");
  line.command("bench checkpoint",
               "measure saving and loading checkpoints, next to raw writes and reads")
      .option("--bytes", &settings->bytes, "N", "size of the state in bytes, which the ranks share")
      .option("--folder", &settings->folder, "DIR",
              "new directory on the disk to measure, removed afterwards")
      .option("--repeats", &settings->repeats, "N", "number of measurements; medians are reported")
      .flag("--json", settings->json, "print one JSON document on one line instead of a table")
      .example("trireme bench checkpoint --bytes 4000000000 --folder runs/bench --json")
      .example("mpirun -n 2 trireme bench checkpoint --folder runs/bench")
      .ranks(Ranks::all)
      .run(print_shared(world, [settings](Communicator& ranks) { return run(*settings, ranks); }));
  const auto question = std::make_shared<IntervalQuestion>();
  line.command("plan-interval",
               "compute how often to save from the cost of a save and the failure rate")
      .option("--stall-s", &question->stall_s, "S",
              "seconds that training waits for one save (see `trireme bench checkpoint`)",
              Need::required)
      .option("--restart-s", &question->restart_s, "S",
              "seconds from a failure to the first new step")
      .option("--mtbf-h", &question->mtbf_h, "H", "hours between failures of the whole job")
      .option("--devices", &question->devices, "N",
              "instead of --mtbf-h: number of GPUs (or nodes) of the job")
      .option("--device-mtbf-h", &question->device_mtbf_h, "H",
              "with --devices: hours between failures of one GPU (or node)")
      .option("--step-time-s", &question->step_time_s, "S",
              "seconds of one step; the result is then also given in steps")
      .example("trireme plan-interval --stall-s 0.5 --devices 64 --step-time-s 1.2")
      .run([question] {
        print(plan_interval_text(*question));
        return kExitDone;
      });
}

}  // namespace trireme
