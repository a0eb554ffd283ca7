#include <nlohmann/json.hpp>
#include <numeric>

#include "bin/trireme/commands.hpp"
#include "bin/trireme/training_world.hpp"
#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "comm/thread/thread_world.hpp"
#include "core/files/json_lines.hpp"
#include "core/log.hpp"
#include "core/number.hpp"
#include "core/process/run_main.hpp"
#include "train/config/layout.hpp"
#include "train/start/run_keys.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme {
namespace {

constexpr int kExitUnequal = 1;
constexpr std::int64_t kMostThreadRanks = 256;

/// Returns the smallest number of ranks that has at least two model replicas and complete expert
/// groups. Throws Error(usage) if it exceeds kMostThreadRanks.
int fewest_ranks(const parallel::ParallelConfig& parallel, bool has_experts) {
  const std::int64_t copies = parallel.hierarchical ? 4 : 2;
  const std::int64_t data = parallel.zero_shard > 0 ? parallel.zero_shard : copies;
  std::int64_t ranks = 1;
  const auto multiply = [&](std::int64_t factor) {
    if (factor > kMostThreadRanks / ranks) {
      fail(
          ErrorKind::usage,
          "parallel.tp = {}, cp = {}, pp = {}, ep = {}, etp = {}, zero_shard = {} need more than {} ranks, the maximum "
          "without mpirun. Run it under mpirun -n N",
          parallel.tp, parallel.cp, parallel.pp, parallel.ep, parallel.etp, parallel.zero_shard,
          kMostThreadRanks);
    }
    ranks *= factor;
  };
  for (const std::int64_t factor : {parallel.tp, parallel.cp, data}) multiply(factor);
  const std::int64_t grid = has_experts ? parallel::expert_tensor_ranks(parallel) * parallel.ep : 1;
  multiply(grid / std::gcd(grid, ranks));
  multiply(parallel.pp);
  return static_cast<int>(ranks);
}

/// Describes the layout; leaves out keys that have their default.
std::string text_of(const parallel::ParallelConfig& parallel) {
  const parallel::ParallelConfig usual;
  std::string text =
      formatted("tp {} cp {} pp {} zero {}", parallel.tp, parallel.cp, parallel.pp, parallel.zero);
  if (parallel.ep != usual.ep) text += formatted(" ep {}", parallel.ep);
  if (parallel.etp != usual.etp) text += formatted(" etp {}", parallel.etp);
  if (parallel.schedule != usual.schedule) text += formatted(" schedule {}", parallel.schedule);
  return text;
}

struct VerifyLayoutSettings {
  train::RunConfig config;
  std::unique_ptr<config::ConfigSet> keys = train::make_run_keys(config);
  std::int64_t ranks = 0;
  std::int64_t steps = 5;
  bool json = false;
};

void complete(VerifyLayoutSettings& settings, const comm::Launch& launch, config::ConfigSet& keys) {
  const bool has_shape =
      settings.config.model.num_heads > 0 || !settings.config.model.preset.empty();
  if (!has_shape) keys.set("model.preset", "tiny", "default");
  train::finish_run_keys(settings.config, keys);
  if (settings.ranks < 0 || settings.ranks > kMostThreadRanks)
    keys.problems().add("--ranks", settings.ranks,
                        formatted("must be in [0, {}]", kMostThreadRanks));
  if (settings.steps < 1) keys.problems().add("--steps", settings.steps, "must be 1 or more");
  if (settings.ranks > 0 && launch.world().size() > 1)
    keys.problems().add("--ranks", settings.ranks,
                        "cannot be given under mpirun; use mpirun -n instead");
}

/// Runs the comparison with all ranks as threads of this process.
train::LayoutComparison verify_on_threads(const VerifyLayoutSettings& settings, int ranks) {
  device::set_cpu_threads(1, ranks);
  train::LayoutComparison comparison;
  std::vector<int> nodes;  // two nodes, so that hierarchical reductions are tested
  for (int rank = 0; rank < ranks; ++rank) nodes.push_back(2 * rank / ranks);
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    const train::LayoutComparison one =
        train::verify_layout(world, settings.config, settings.steps, at::kCPU, nodes);
    if (world.rank() == 0) comparison = one;
  });
  return comparison;
}

void print_comparison(const VerifyLayoutSettings& settings,
                      const train::LayoutComparison& comparison, int ranks,
                      const std::string& backend, at::Device device) {
  if (settings.json) {
    // JSON has no infinity: a value that cannot be compared becomes null.
    print(json_line({{"ranks", ranks},
                     {"backend", backend},
                     {"device", device.str()},
                     {"loss_rel", comparison.loss_rel},
                     {"grad_rel", comparison.grad_rel},
                     {"grad_worst", comparison.grad_worst},
                     {"norm_rel", comparison.norm_rel},
                     {"weight_rel", comparison.weight_rel},
                     {"moment_rel", comparison.moment_rel},
                     {"num_excluded", comparison.num_excluded},
                     {"bound", comparison.bound},
                     {"equal", comparison.equal()}}));
    return;
  }
  const std::string excluded =
      comparison.num_excluded == 0
          ? ""
          : formatted("  {} weights are not compared, because their gradients are tiny\n",
                      comparison.num_excluded);
  print(formatted(
      "{} ranks ({}), {}, fp64, {} optimizer steps of a small model of this shape, "
      "compared with one process\n"
      "  loss {}, gradients {} (worst: {}), norm {}, weights {}, optimizer state {}; bound {}\n{}{}\n",
      ranks, backend, text_of(settings.config.parallel), settings.steps,
      number_text(comparison.loss_rel), number_text(comparison.grad_rel),
      comparison.grad_worst.empty() ? "none" : comparison.grad_worst,
      number_text(comparison.norm_rel), number_text(comparison.weight_rel),
      number_text(comparison.moment_rel), number_text(comparison.bound), excluded,
      comparison.equal() ? "equal" : "NOT EQUAL"));
}

int run(const VerifyLayoutSettings& settings, const comm::Launch& launch) {
  const parallel::ParallelConfig& parallel = settings.config.parallel;
  comm::Communicator& world = launch.world();
  train::LayoutComparison comparison;
  const std::string idle = train::keys_without_effect(parallel);
  if (!idle.empty() && world.rank() == 0) log::warn(idle);
  if (world.size() == 1) {
    const int ranks = settings.ranks > 0 ? static_cast<int>(settings.ranks)
                                         : fewest_ranks(parallel, settings.config.model.moe.on());
    train::check_verifiable(settings.config, ranks);
    comparison = verify_on_threads(settings, ranks);
    print_comparison(settings, comparison, ranks, "thread", at::kCPU);
    return comparison.equal() ? kExitDone : kExitUnequal;
  }
  comm::all_or_none(world, [&] { train::check_verifiable(settings.config, world.size()); });
  device::set_cpu_threads(settings.config.train.threads, launch.info().local_size);
  const at::Device device =
      device::choose_device(settings.config.train.device, launch.info().local_rank);
  const std::unique_ptr<comm::Communicator> own =
      training_world(launch, device.is_cuda(), parallel);
  comm::Communicator& used = own ? *own : world;
  const std::vector<int> nodes = comm::all_gather_value(world, launch.info().node, "nodes");
  comparison = train::verify_layout(used, settings.config, settings.steps, device, nodes);
  const bool equal =
      comm::broadcast_value<std::int64_t>(world, comparison.equal() ? 1 : 0, 0, "comparison") == 1;
  if (world.rank() == 0)
    print_comparison(settings, comparison, world.size(), used.backend(), device);
  return equal ? kExitDone : kExitUnequal;
}

}  // namespace

void add_verify_layout_command(config::CommandLine& line, comm::Launch& launch) {
  const auto settings = std::make_shared<VerifyLayoutSettings>();
  line.command("verify-layout",
               "check that a parallel layout computes the same losses and gradients as one process "
               "(fp64)")
      .option(
          "--ranks", &settings->ranks, "N",
          "without mpirun: number of ranks (threads); 0: the fewest with two data-parallel ranks")
      .option("--steps", &settings->steps, "N", "number of optimizer steps that are compared")
      .flag("--json", settings->json, "print the differences as one JSON document on one line")
      .config(*settings->keys,
              [settings, &launch](config::ConfigSet& keys) { complete(*settings, launch, keys); })
      .example("trireme verify-layout --parallel.tp 2 --parallel.zero 3")
      .example("mpirun -n 4 trireme verify-layout --config run.toml --parallel.tp 2 --json")
      .ranks(config::Ranks::all)
      .run([settings, &launch] { return run(*settings, launch); });
}

}  // namespace trireme
