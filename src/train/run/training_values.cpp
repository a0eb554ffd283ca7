#include "comm/agree.hpp"
#include "comm/scalars.hpp"
#include "core/error.hpp"
#include "parallel/device.hpp"
#include "parallel/torch_errors.hpp"
#include "train/config/open_values.hpp"
#include "train/health/memory_need.hpp"
#include "train/run/training_run.hpp"

/// The part of a run that settles what was left open and whether there is room for it.
namespace trireme {

void TrainingRun::choose_values() {
  std::int64_t bf16 = 0;
  OpenValueFacts facts;
  all_or_none(world_, [&] {
    facts.data_ranks = data_ranks(config_.parallel, world_.size());
    bf16 = with_torch_errors([&] {
      return has_bf16(choose_device(config_.train.device, ranks_.launch.local_rank)) ? 1 : 0;
    });
    if (start_.kind == RunStart::Kind::go_on) facts.saved = start_.values;
  });
  // One precision for all, whatever GPUs the nodes have.
  facts.has_bf16 = all_reduce_value(world_, bf16, ReduceOp::min, "bf16") != 0;
  // What a new run has from the checkpoint it starts from gives way to what this command says.
  if (facts.saved.empty() && config_.train.accumulation > 0 && !keys_.is_set("train.global_batch"))
    config_.train.global_batch = 0;
  all_or_none(world_, [&] {
    batch_note_ = fill_open_values(config_, facts, keys_.problems());
    keys_.finish();
  });
}

void TrainingRun::check_room() const {
  const at::Device device = choose_device(config_.train.device, ranks_.launch.local_rank);
  // A GPU may be this rank's alone under the name that all ranks see (CUDA_VISIBLE_DEVICES).
  const int sharing = device.is_cpu() ? ranks_.launch.local_size : 1;
  check_memory(memory_need(config_, precision_dtypes(config_.train.precision)), sharing,
               device_memory(device),
               device.is_cpu() ? "this machine" : formatted("device {}", device), keys_);
}

}  // namespace trireme
