#include <algorithm>
#include <array>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <thread>

#include "bin/trireme/bench_settings.hpp"
#include "bin/trireme/commands.hpp"
#include "comm/agree.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "device/device.hpp"
#include "train/planner/config_json.hpp"
#include "train/planner/scaling.hpp"
#include "train/verify/bench_collectives.hpp"

namespace trireme {
namespace {

constexpr std::int64_t kLeastReduce = 1024;
constexpr std::int64_t kMostReduce = std::int64_t{8} << 20;
constexpr double kReduceSeconds = 0.02;  // time of one measurement of a size
constexpr int kReduceRepeats = 3;        // the fastest one counts, without other load
// Tokens of the default global batch in a strong study, and the limits of its sequences.
constexpr std::int64_t kStrongTokens = 65536;
constexpr std::int64_t kLeastLength = 16;
constexpr std::int64_t kMostLength = 128;

struct ScalingSettings {
  BenchSettings bench;
  bool strong = false;
  bool weak = false;
  std::string ranks_text = "1";
  std::string predict_text;
  std::string gpu;
  std::string figure;
  std::vector<int> ranks;    // measured, ascending
  std::vector<int> predict;  // predicted, ascending

  [[nodiscard]] planner::Scaling scaling() const {
    return strong ? planner::Scaling::strong : planner::Scaling::weak;
  }
};

/// Reads "1,2,8" in ascending order without doubles.
std::vector<int> read_ranks(const char* option, const std::string& text, Problems& problems) {
  std::vector<int> ranks;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t comma = rest.find(',');
    const auto value = parse_integer(rest.substr(0, comma));
    if (!value || *value < 1 || *value > planner::kMostPlannedRanks) {
      problems.add(option, text,
                   formatted("must be numbers of ranks in [1, {}], separated by commas",
                             planner::kMostPlannedRanks));
      return {1};
    }
    ranks.push_back(static_cast<int>(*value));
    rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
  }
  std::ranges::sort(ranks);
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

/// Sets a global batch size that divides by all numbers of ranks, with short sequences, because the
/// smallest number of ranks trains all of it.
void set_strong_batch(const ScalingSettings& settings, config::ConfigSet& keys) {
  const train::TrainConfig& train = settings.bench.bench.config.train;
  if (train.global_batch > 0 || train.accumulation > 0) return;
  std::int64_t batch = train.micro_batch * settings.ranks.back();
  for (const std::vector<int>* list : {&settings.ranks, &settings.predict})
    for (const int ranks : *list)
      batch = std::min(std::lcm(batch, std::int64_t{ranks}), std::int64_t{1} << 20);
  keys.set("train.global_batch", cat(batch), "default");
  if (train.seq_len == 0)
    keys.set("train.seq_len", cat(std::clamp(kStrongTokens / batch, kLeastLength, kMostLength)),
             "default");
}

void complete(ScalingSettings& settings, config::ConfigSet& keys) {
  Problems& problems = keys.problems();
  if (settings.strong == settings.weak)
    problems.add(
        "give either --strong (constant global batch) or --weak (constant batch per rank)");
  settings.ranks = read_ranks("--ranks", settings.ranks_text, problems);
  settings.predict = read_ranks("--predict", settings.predict_text, problems);
  for (const int ranks : settings.predict)
    if (std::ranges::find(settings.ranks, ranks) != settings.ranks.end())
      problems.add("--predict", ranks, "is measured already (--ranks)");
  if (settings.ranks.empty()) problems.add("--ranks", "''", "must name at least one number");
  if (settings.strong && !settings.ranks.empty()) set_strong_batch(settings, keys);
  settings.bench.complete(keys);
}

/// Returns the data sheet of this device.
planner::DeviceKind kind_of(const ScalingSettings& settings) {
  if (settings.bench.bench.device.is_cpu()) {
    planner::DeviceKind cpu = planner::device_kind("cpu");
    cpu.cores = static_cast<int>(std::thread::hardware_concurrency());
    const std::int64_t threads = settings.bench.bench.config.train.threads;
    cpu.rank_cores = std::min(static_cast<int>(threads), cpu.cores);
    return cpu;
  }
  if (!settings.gpu.empty()) return planner::device_kind(settings.gpu);
  const std::string name = device::device_name(settings.bench.bench.device);
  if (const planner::DeviceKind* kind = planner::kind_of_device(name)) return *kind;
  fail(ErrorKind::usage,
       "the data sheet of {} is not known. Give --gpu KIND with the nearest of {}", name,
       joined(planner::device_kind_names(), ", "));
}

/// The measurements of a study, equal on all ranks.
struct Measured {
  std::vector<planner::ScalingPoint> points;
  std::vector<planner::BenchRow> rows;
  std::vector<planner::TimedAllReduce> reduces;
};

/// Measures steps and collectives of the first `ranks` ranks. The other ranks wait.
void measure(const ScalingSettings& settings, const planner::DeviceKind& kind, int ranks,
             comm::Launch& launch, comm::Communicator* on_device, comm::Activity& activity,
             Measured& measured) {
  comm::Communicator& world = launch.world();
  const int color = world.rank() < ranks ? 0 : -1;
  const auto control = world.split(color, world.rank(), "scaling");
  const auto devices = on_device != nullptr ? on_device->split(color, world.rank(), "scaling")
                                            : std::unique_ptr<comm::Communicator>();
  train::StepBench bench = settings.bench.bench;
  bench.config = planner::scaled_config(bench.config, settings.scaling(), ranks);
  if (control) {
    comm::Communicator& group = devices ? *devices : *control;
    const train::StepFigures figures = train::measure_step(*control, group, activity, bench);
    const planner::Cluster cluster = planner::scaled_cluster(kind, ranks, launch.info().local_size);
    measured.rows.push_back(
        {{train::facts_of_run(bench.config, ranks), cluster, figures.step_time_s},
         figures.comm_exposed_s});
    measured.points.push_back(
        {ranks, figures.step_time_s, figures.tokens_per_s, 1,
         figures.comm_exposed_s / std::max(figures.step_time_s - figures.comm_exposed_s, 1e-12),
         false});
    if (ranks > 1) {
      for (const std::int64_t bytes : train::collective_sizes(kLeastReduce, kMostReduce)) {
        double least_s = std::numeric_limits<double>::infinity();
        double size = 0;
        for (int i = 0; i < kReduceRepeats; ++i) {
          const train::CollectiveTime time = train::measure_collective(
              *control, group, bench.device, "all_reduce", bytes, kReduceSeconds);
          least_s = std::min(least_s, time.time_s);
          size = static_cast<double>(time.bytes);
        }
        measured.reduces.push_back({ranks, size, least_s});
      }
    }
  }
  world.barrier();
}

struct Study {
  std::vector<planner::ScalingPoint> points;
  std::optional<planner::AlphaBeta> fit;  // absent if all measurements have one rank
  std::vector<double> step_errors;        // relative errors of the time model on measured steps
};

/// Fits the links and the time model to the measurements, and predicts the other points.
Study study_of(const ScalingSettings& settings, planner::DeviceKind kind, int per_node,
               Measured measured) {
  Study study;
  std::vector<planner::TimedAllReduce> network = measured.reduces;
  std::erase_if(network, [&](const auto& time) { return time.ranks <= per_node; });
  std::erase_if(measured.reduces, [&](const auto& time) { return time.ranks > per_node; });
  if (!measured.reduces.empty()) {
    study.fit = planner::fit_alpha_beta(measured.reduces);
    kind.links = planner::with_node_fit(kind.links, *study.fit);
  }
  if (!network.empty()) {
    study.fit = planner::fit_alpha_beta(network);
    kind.links = planner::with_network_fit(kind.links, *study.fit, per_node);
  }
  for (planner::BenchRow& row : measured.rows) row.step.cluster.device = kind;
  const planner::Calibration calibration = planner::calibrate(measured.rows);
  study.step_errors = calibration.errors;
  study.points = std::move(measured.points);
  for (const int ranks : settings.predict) {
    study.points.push_back(planner::predict_point(
        planner::scaled_config(settings.bench.bench.config, settings.scaling(), ranks), ranks,
        planner::scaled_cluster(kind, ranks, per_node), calibration.constants));
  }
  planner::set_efficiency(study.points);
  return study;
}

const char* kind_name(const planner::ScalingPoint& point) {
  return point.is_predicted ? "predicted" : "measured";
}

Json json_of(const ScalingSettings& settings, const Study& study) {
  const train::RunConfig& config = settings.bench.bench.config;
  Json points = Json::array();
  for (const planner::ScalingPoint& point : study.points)
    points.push_back({{"ranks", point.ranks},
                      {"step_s", point.step_s},
                      {"tokens_per_s", point.tokens_per_s},
                      {"efficiency", point.efficiency},
                      {"comm_compute_ratio", point.comm_compute_ratio},
                      {"kind", kind_name(point)}});
  Json json{{"scaling", settings.strong ? "strong" : "weak"},
            {"device", device::device_name(settings.bench.bench.device)},
            {"model", planner::config_json(config.model)},
            {"parallel", planner::config_json(config.parallel)},
            {"seq_len", config.train.seq_len},
            {"points", points},
            {"fit", nullptr},
            {"step_errors", study.step_errors}};
  if (settings.strong) json["global_batch"] = config.train.global_batch;
  if (study.fit)
    json["fit"] = {{"alpha_s", study.fit->alpha_s},
                   {"beta_s_per_byte", study.fit->beta_s_per_byte},
                   {"heldout_error", study.fit->heldout_error}};
  return json;
}

std::string text_of(const ScalingSettings& settings, const Study& study) {
  std::string text = formatted(
      "{} scaling of {}\n  ranks       step     tokens/s  efficiency  comm/compute\n",
      settings.strong ? "strong" : "weak",
      settings.bench.bench.config.model.preset.empty() ? "the model"
                                                       : settings.bench.bench.config.model.preset);
  for (const planner::ScalingPoint& point : study.points) {
    std::array<char, 160> line{};
    std::snprintf(line.data(), line.size(), "%7d %8.3f s %12.0f %9.1f %% %13.4f  %s\n", point.ranks,
                  point.step_s, point.tokens_per_s, 100 * point.efficiency,
                  point.comm_compute_ratio, kind_name(point));
    text += line.data();
  }
  if (study.fit) {
    std::array<char, 200> line{};
    std::snprintf(
        line.data(), line.size(),
        "all-reduce: alpha %.2e s, bandwidth %.3f GB/s; error on held-out sizes %.1f %%\n",
        study.fit->alpha_s, 1e-9 / std::max(study.fit->beta_s_per_byte, 1e-15),
        100 * study.fit->heldout_error);
    text += line.data();
  }
  return text;
}

int run(ScalingSettings& settings, comm::Launch& launch, comm::Activity& activity) {
  comm::Communicator& world = launch.world();
  const int most = settings.ranks.back();
  comm::all_or_none(world, [&] {
    if (world.size() != most)
      fail(ErrorKind::usage,
           "--ranks {} measures on up to {} ranks, but this command has {}. Start it with "
           "`mpirun -n {}` or `srun -n {}`",
           settings.ranks_text, most, world.size(), most, most);
  });
  const auto on_device = settings.bench.prepare(launch);
  const planner::DeviceKind kind = comm::all_or_none(world, [&] {
    for (const std::vector<int>* list : {&settings.ranks, &settings.predict})
      for (const int ranks : *list)
        (void)planner::scaled_config(settings.bench.bench.config, settings.scaling(), ranks);
    return kind_of(settings);
  });
  Measured measured;
  for (const int ranks : settings.ranks)
    measure(settings, kind, ranks, launch, on_device.get(), activity, measured);
  comm::all_or_none(world, [&] {
    if (world.rank() != 0) return;
    const Study study = study_of(settings, kind, launch.info().local_size, std::move(measured));
    if (!settings.figure.empty())
      write_file_atomic(
          settings.figure,
          planner::scaling_figure(study.points,
                                  formatted("{} scaling, {}", settings.strong ? "strong" : "weak",
                                            device::device_name(settings.bench.bench.device))));
    print(settings.bench.json ? json_line(json_of(settings, study)) : text_of(settings, study));
  });
  return kExitDone;
}

}  // namespace

void add_bench_scaling_command(config::CommandLine& line, comm::Launch& launch,
                               comm::Activity& activity) {
  const auto settings = std::make_shared<ScalingSettings>();
  line.command("bench scaling",
               "measure training steps on few ranks and predict them on many (strong or weak "
               "scaling)")
      .flag("--strong", settings->strong, "keep the global batch size for all numbers of ranks")
      .flag("--weak", settings->weak, "keep the batch size of each data rank")
      .option("--ranks", &settings->ranks_text, "LIST",
              "numbers of ranks to measure, such as 1,2; the largest is that of mpirun or srun")
      .option("--predict", &settings->predict_text, "LIST",
              "numbers of ranks to predict from the measurements, such as 8,4096")
      .option("--steps", &settings->bench.bench.steps, "N",
              "measured optimizer steps, after two warm-up steps")
      .option("--gpu", &settings->gpu, "KIND",
              cat("data sheet of the GPU: ", joined(planner::device_kind_names(), ", "),
                  "; default: by the name of the device"))
      .option("--figure", &settings->figure, "FILE", "also write the figure as an SVG file")
      .flag("--json", settings->bench.json,
            "print one JSON document on one line instead of a table")
      .config(*settings->bench.keys,
              [settings](config::ConfigSet& keys) { complete(*settings, keys); })
      .example("mpirun -n 2 trireme bench scaling --weak --ranks 1,2 --predict 8,4096")
      .example(
          "mpirun -n 2 trireme bench scaling --strong --ranks 1,2 --train.global_batch 64 "
          "--json")
      .ranks(config::Ranks::all)
      .run([settings, &launch, &activity] { return run(*settings, launch, activity); });
}

}  // namespace trireme
