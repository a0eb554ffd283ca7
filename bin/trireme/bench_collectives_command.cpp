#include <array>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

/// An implementation of the collectives that is measured.
struct Backend {
  const char* name;
  comm::Communicator* world;
  std::unique_ptr<comm::Communicator> owned;

  [[nodiscard]] bool has(const std::string& op) const {
    const std::string_view self = name;
    if (self == "library") return op == "all_reduce" || op == "reduce_scatter";
    return self != "shared" || (op != "all_to_all" && op != "send_recv");
  }
};

/// Returns the backends of the ranks; the first one is compared with the others. Collective.
std::vector<Backend> measured_backends(const comm::Launch& launch, at::Device device) {
  std::vector<Backend> backends;
  const auto add = [&](const char* name, std::unique_ptr<comm::Communicator> world) {
    comm::Communicator* const raw = world.get();
    backends.push_back({name, raw, std::move(world)});
  };
  if (device.is_cuda()) {
    add("nccl", comm::make_world("nccl", launch.info(), {}, comm::nccl_backends()));
    return backends;
  }
  comm::Communicator& world = launch.world();
  const bool shares = world.shares_memory();
  backends.push_back({shares ? "shared" : world.backend(), &world, nullptr});
  if (shares) add("mpi", launch.world_with(comm::SharedMemory::never));
  comm::CommOptions library;
  library.mpi_reduce = comm::MpiReduce::library;
  if (world.size() > 1) add("library", comm::make_world("mpi", launch.info(), library));
  return backends;
}

/// One measured time, and the times of other backends divided by it.
struct BackendTime {
  const char* backend;
  train::CollectiveTime time;
  std::vector<std::pair<std::string, double>> ratios;
};

std::vector<BackendTime> measure(comm::Communicator& control, const std::vector<Backend>& backends,
                                 at::Device device, const std::string& op, std::int64_t bytes,
                                 double seconds) {
  std::vector<BackendTime> times;
  for (const Backend& backend : backends) {
    if (!backend.has(op)) continue;
    times.push_back({backend.name,
                     train::measure_collective(control, *backend.world, device, op, bytes, seconds),
                     {}});
  }
  if (std::string_view(times.front().backend) == "shared") {
    for (std::size_t i = 1; i < times.size(); ++i)
      times.front().ratios.emplace_back(cat(times[i].backend, "_ratio"),
                                        times[i].time.time_s / times.front().time.time_s);
  }
  return times;
}

std::string text(const BackendTime& row, int ranks) {
  const train::CollectiveTime& time = row.time;
  std::array<char, 160> line{};
  std::snprintf(line.data(), line.size(),
                "%-15s %-8s %12lld bytes %12.1f us  %9.3f GB/s  %9.3f GB/s", time.op.c_str(),
                row.backend, static_cast<long long>(time.bytes), 1e6 * time.time_s, time.algbw(),
                time.busbw(ranks));
  std::string all = line.data();
  for (const auto& [name, ratio] : row.ratios) {
    std::snprintf(line.data(), line.size(), "  %s %.2f", name.c_str(), ratio);
    all += line.data();
  }
  return all + "\n";
}

Json json_of(const BackendTime& row, int ranks) {
  const train::CollectiveTime& time = row.time;
  Json json{{"op", time.op},
            {"backend", row.backend},
            {"ranks", ranks},
            {"bytes", time.bytes},
            {"time_us", 1e6 * time.time_s},
            {"algbw", time.algbw()},
            {"busbw", time.busbw(ranks)}};
  for (const auto& [name, ratio] : row.ratios) json[name] = ratio;
  return json;
}

int run(const CollectivesSettings& settings, comm::Launch& launch) {
  comm::Communicator& control = launch.world();
  const at::Device device = comm::all_or_none(control, [&] {
    check(settings);
    return device::choose_device(settings.device, launch.info().local_rank);
  });
  const std::vector<Backend> backends = measured_backends(launch, device);
  const int ranks = control.size();
  if (control.rank() == 0 && !settings.json)
    print(formatted("{} ranks: operation, backend, size, time, algbw, busbw\n", ranks));
  for (const std::string& op : settings.ops.empty() ? train::collective_names() : settings.ops) {
    for (const std::int64_t bytes :
         train::collective_sizes(settings.min_bytes, settings.max_bytes)) {
      const auto rows = measure(control, backends, device, op, bytes, settings.seconds);
      for (const BackendTime& row : rows) {
        if (control.rank() != 0) continue;
        print(settings.json ? json_line(json_of(row, ranks)) : text(row, ranks));
      }
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
      .option(
          "--device", &settings->device, "auto|cpu|cuda",
          "cuda: NCCL between GPUs; cpu: shared memory, messages of MPI and MPI's own reductions; "
          "auto: cuda if there is a GPU")
      .flag("--json", settings->json, "print one JSON object per line instead of a table")
      .example("mpirun -n 2 trireme bench collectives")
      .example("mpirun -n 2 trireme bench collectives --op all_reduce --max-bytes 1048576 --json")
      .ranks(config::Ranks::all)
      .run([settings, &launch] { return run(*settings, launch); });
}

}  // namespace trireme
