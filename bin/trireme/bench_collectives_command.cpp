#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bin/trireme/commands.hpp"
#include "comm/agree.hpp"
#include "comm/factory.hpp"
#include "comm/nccl/nccl_backend.hpp"
#include "core/files/json_lines.hpp"
#include "core/problems.hpp"
#include "core/process/run_main.hpp"
#include "device/device.hpp"
#include "train/verify/bench_collectives.hpp"

namespace trireme {
namespace {

struct CollectivesSettings {
  std::vector<std::string> ops;
  std::int64_t min_bytes = 8;
  std::int64_t max_bytes = std::int64_t{64} << 20;
  double seconds = 0.1;
  std::string device = "auto";
  bool json = false;
};

/// The largest tensor of the benchmark.
constexpr std::int64_t kMostBytes = std::int64_t{16} << 30;

void check(const CollectivesSettings& settings) {
  Problems problems;
  for (const std::string& op : settings.ops) problems.one_of("--op", op, train::collective_names());
  problems.one_of("--device", settings.device, std::vector<std::string>{"auto", "cpu", "cuda"});
  if (settings.min_bytes < 4 || settings.min_bytes > kMostBytes)
    problems.add("--min-bytes", settings.min_bytes, formatted("must be in [4, {}]", kMostBytes));
  if (settings.max_bytes < settings.min_bytes || settings.max_bytes > kMostBytes)
    problems.add("--max-bytes", settings.max_bytes,
                 formatted("must be in [--min-bytes, {}]", kMostBytes));
  if (!(settings.seconds > 0) || settings.seconds > 60)
    problems.add("--seconds", settings.seconds, "must be above 0 and at most 60");
  problems.throw_if_any();
}

std::string text(const train::CollectiveTime& time, int ranks) {
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(), "%-15s %12lld bytes %12.1f us  %9.3f GB/s  %9.3f GB/s\n",
                time.op.c_str(), static_cast<long long>(time.bytes), 1e6 * time.time_s,
                time.algbw(), time.busbw(ranks));
  return line.data();
}

int run(const CollectivesSettings& settings, comm::Launch& launch) {
  comm::Communicator& control = launch.world();
  const at::Device device = comm::all_or_none(control, [&] {
    check(settings);
    return device::choose_device(settings.device, launch.info().local_rank);
  });
  const std::unique_ptr<comm::Communicator> on_device =
      device.is_cuda() ? comm::make_world("nccl", launch.info(), {}, comm::nccl_backends())
                       : nullptr;
  comm::Communicator& world = on_device ? *on_device : control;
  if (control.rank() == 0 && !settings.json)
    print(formatted("{} ranks, {}: operation, size, time, algbw, busbw\n", world.size(),
                    world.backend()));
  for (const std::string& op : settings.ops.empty() ? train::collective_names() : settings.ops) {
    for (const std::int64_t bytes :
         train::collective_sizes(settings.min_bytes, settings.max_bytes)) {
      const train::CollectiveTime time =
          train::measure_collective(control, world, device, op, bytes, settings.seconds);
      if (control.rank() != 0) continue;
      const Json json{{"op", time.op},
                      {"backend", world.backend()},
                      {"ranks", world.size()},
                      {"bytes", time.bytes},
                      {"time_us", 1e6 * time.time_s},
                      {"algbw", time.algbw()},
                      {"busbw", time.busbw(world.size())}};
      print(settings.json ? json_line(json) : text(time, world.size()));
    }
  }
  return kExitDone;
}

}  // namespace

void add_bench_collectives_command(config::CommandLine& line, comm::Launch& launch) {
  const auto settings = std::make_shared<CollectivesSettings>();
  line.command("bench collectives",
               "measure time and bandwidth of collectives, with the definitions of nccl-tests")
      .option("--op", &settings->ops, "NAME",
              "operations to measure: all_reduce, reduce_scatter, all_gather, all_to_all, "
              "broadcast, send_recv; default: all of them")
      .option("--min-bytes", &settings->min_bytes, "N",
              "smallest size; each next one is twice as large")
      .option("--max-bytes", &settings->max_bytes, "N", "largest size")
      .option("--seconds", &settings->seconds, "S", "measured time of each operation and size")
      .option("--device", &settings->device, "auto|cpu|cuda",
              "cuda: NCCL between GPUs; cpu: MPI; auto: cuda if there is a GPU")
      .flag("--json", settings->json, "print one JSON object per line instead of a table")
      .example("mpirun -n 2 trireme bench collectives")
      .example("mpirun -n 2 trireme bench collectives --op all_reduce --max-bytes 1048576 --json")
      .ranks(config::Ranks::all)
      .run([settings, &launch] { return run(*settings, launch); });
}

}  // namespace trireme
