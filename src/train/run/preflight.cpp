#include "train/run/preflight.hpp"

#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/log.hpp"
#include "core/problems.hpp"
#include "data/order/length_warning.hpp"
#include "job/doctor/findings.hpp"
#include "parallel/device.hpp"
#include "parallel/torch_errors.hpp"
#include "train/health/memory_need.hpp"
#include "train/run/frozen_start.hpp"

namespace trireme {
namespace {

/// Collective: throws on all ranks what `trireme doctor` calls an error.
void check_ranks(const RunRequest& run) {
  Communicator& world = run.ranks.world;
  const LaunchInfo& launch = run.ranks.launch;
  const std::string& wanted = run.config.train.device;
  const at::Device device = choose_device(wanted, launch.local_rank);
  RankFacts mine = own_facts(launch, run.config.train.threads);
  mine.device.gpu = gpu_identity(device);
  mine.device.num_gpus = device.is_cuda() ? num_visible_gpus() : 0;
  mine.device.was_chosen = wanted != "auto";
  if (wanted != "cpu") {
    const CudaVersions cuda = cuda_versions();
    mine.cuda_driver = cuda.driver;
    mine.cuda_runtime = cuda.runtime;
  }
  const auto all = gather_texts(world, to_text(mine));
  all_or_none(world, [&] {
    if (world.rank() != 0) return;
    std::vector<RankFacts> ranks;
    for (const std::string& text : all) ranks.push_back(rank_facts_from(text));
    Problems problems;
    for (const Finding& one : findings_of(ranks)) {
      if (one.severity == Finding::Severity::error) problems.add(one.line());
    }
    problems.throw_if_any();
  });
}

/// Logs a warning for each data set that loses something at a length below the packed one.
void warn_of_length(const RunData& data) {
  for (const SampleSet* samples : data.sample_sets()) {
    const std::string text = length_warning(*samples, "train.seq_len =");
    if (!text.empty()) log::warn(text);
  }
}

}  // namespace

bool preflight_ranks(const RunRequest& run) {
  Communicator& world = run.ranks.world;
  const std::int64_t bf16 = all_or_none(world, [&] {
    return with_torch_errors([&] {
      return has_bf16(choose_device(run.config.train.device, run.ranks.launch.local_rank)) ? 1 : 0;
    });
  });
  check_ranks(run);
  // One precision for all, whatever GPUs the nodes have.
  return all_reduce_value(world, bf16, ReduceOp::min, "bf16") != 0;
}

void preflight_run(const RunRequest& run, const RunData& data) {
  run.task.check_files(run.config, data.sample_sets());
  if (run.ranks.world.rank() == 0) warn_of_length(data);
  check_frozen(run, data);
  with_torch_errors([&] {
    check_room(run.config, run.ranks.launch, run.ranks.world.size(), run.keys,
               !data.stream().of_pairs(), frozen_parameters(run));
  });
}

}  // namespace trireme
