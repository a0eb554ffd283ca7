#include "train/health/memory_need.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "optim/optimizer.hpp"
#include "parallel/device.hpp"
#include "train/audit/memory_formula.hpp"

namespace trireme {
namespace {

double bytes_of(at::ScalarType type) {
  return static_cast<double>(c10::elementSize(type));
}

/// Into how many parts the ranks cut a model's elements; of a pipeline's ranks the mean.
struct RankCuts {
  /// `has_experts`: some model has; else nothing asks how they are dealt.
  RankCuts(const ParallelConfig& parallel, std::int64_t data_ranks, bool has_experts)
      : others(static_cast<double>(parallel.tp * parallel.pp)),
        experts(others),
        shards(static_cast<double>(shard_ranks(parallel, data_ranks))),
        expert_shards(shards) {
    if (!has_experts || !folds_experts(parallel)) return;
    experts = static_cast<double>(expert_tensor_ranks(parallel) * parallel.ep * parallel.pp);
    const auto ranks = static_cast<int>(data_ranks * parallel.tp * parallel.pp);
    expert_shards = static_cast<double>(expert_shard_ranks(parallel, ranks));
  }

  /// Of `count` elements, `of_experts` of them routed experts', those on a rank: all that are its
  /// own, or its shard of them.
  [[nodiscard]] double held(double count, double of_experts, bool sharded) const {
    const double own = (count - of_experts) / others;
    const double own_experts = of_experts / experts;
    return sharded ? own / shards + own_experts / expert_shards : own + own_experts;
  }

  double others;
  double experts;  // in a grid of their own they are cut by that
  double shards;
  double expert_shards;
};

}  // namespace

std::vector<MemoryPart> memory_need(const RunConfig& config, ParamDTypes dtypes,
                                    std::int64_t data_ranks, bool offloaded,
                                    const FrozenParameters& beside) {
  const ModelConfig& model = config.model;
  const ParallelConfig& parallel = config.parallel;
  const RankCuts cuts(parallel, data_ranks, model.moe.on() || beside.experts > 0);
  const bool adapters = config.lora.on();
  // Elements on a rank, of what it holds one part of from a stage on.
  const auto base_held = [&](std::int64_t from) {
    return cuts.held(model.num_parameters_wide(), model.num_expert_parameters_wide(),
                     parallel.zero >= from);
  };
  const double of_adapters =
      adapters ? static_cast<double>(num_lora_parameters(config.lora, model)) : 0;
  const auto trained_held = [&](std::int64_t from) {
    return adapters ? cuts.held(of_adapters, 0, parallel.zero >= from) : base_held(from);
  };
  const double main = bytes_of(dtypes.main);
  const double moments =
      static_cast<double>(num_optimizer_slots(config.optim)) * trained_held(1) * main;
  const bool two_copies = offloaded || dtypes.compute != dtypes.main;
  const double tokens =
      static_cast<double>(config.train.micro_batch) * static_cast<double>(config.train.seq_len);
  std::vector<std::string> shape{"model.num_layers", "model.hidden_size", "model.intermediate_size",
                                 "model.num_heads",  "model.head_dim",    "model.vocab_size"};
  if (model.moe.on())
    shape.insert(shape.end(), {"model.num_experts", "model.moe_intermediate_size"});
  std::vector<MemoryPart> parts{{"gradients", trained_held(2) * main, shape}};
  if (!offloaded) {
    parts.insert(parts.begin(), {"weights", trained_held(two_copies ? 1 : 3) * main, shape});
    parts.push_back({"moments", moments, shape});
  }
  const double compute = bytes_of(dtypes.compute);
  if (two_copies) parts.push_back({"weights to compute with", trained_held(3) * compute, shape});
  if (adapters) parts.push_back({"frozen weights", base_held(3) * compute, shape});
  if (beside.count > 0) {
    parts.push_back({"a frozen model beside it",
                     cuts.held(beside.count, beside.experts, parallel.zero >= 3) * compute,
                     beside.key.empty() ? shape : std::vector{beside.key}});
  }
  // cos and sin of half a head each, at every position
  const double angle = dtypes.compute == at::kDouble ? sizeof(double) : sizeof(float);
  parts.push_back(
      {"rotary tables",
       static_cast<double>(model.max_seq_len) * static_cast<double>(model.head_dim) * angle,
       {"model.max_seq_len", "model.head_dim"}});
  parts.push_back(
      {"inputs of the blocks",
       tokens * static_cast<double>(model.hidden_size) * static_cast<double>(model.num_layers) /
           static_cast<double>(parallel.pp) * bytes_of(dtypes.compute),
       {"train.micro_batch", "train.seq_len", "model.hidden_size", "model.num_layers"}});
  return parts;
}

UpdateFacts facts_of_run(const RunConfig& config, int ranks) {
  const TrainConfig& train = config.train;
  const std::int64_t at_once = train.micro_batch * data_ranks(config.parallel, ranks);
  return update_facts(config.model, config.optim, precision_dtypes(train.precision),
                      config.parallel, ranks,
                      {.rows = train.micro_batch,
                       .length = train.seq_len,
                       .micro_steps = std::max<std::int64_t>(1, train.global_batch / at_once),
                       .path = ops::path_of(train.fused_ops)},
                      config.lora);
}

void count_activations(const RunConfig& config, int ranks, int rank,
                       std::vector<MemoryPart>& parts) {
  const auto bytes =
      static_cast<double>(memory_formula(facts_of_run(config, ranks), rank).activation_peak_bytes);
  if (bytes < parts.back().bytes) return;  // -1: not known
  parts.back().what = "activations";
  parts.back().bytes = bytes;
}

void check_memory(const std::vector<MemoryPart>& parts, int ranks, const MachineMemory& memory,
                  const std::string& place, const ConfigSet& keys) {
  double sum = 0;
  for (const MemoryPart& part : parts) sum += part.bytes;
  const double all = sum * ranks;
  if (all <= memory.available) return;
  const std::string list = joined(parts, ", ", [](const MemoryPart& part) {
    return formatted("{} {}", part.what, format_bytes(part.bytes));
  });
  const MemoryPart& largest =
      *std::max_element(parts.begin(), parts.end(),
                        [](const MemoryPart& a, const MemoryPart& b) { return a.bytes < b.bytes; });
  const std::string causes = joined(largest.keys, ", ", [&](const std::string& key) {
    return formatted("{} = {}", key, keys.value(key));
  });
  const bool never = all > memory.total;
  fail(never ? ErrorKind::usage : ErrorKind::resource,
       "a rank needs at least {} ({}); {}{}{}. Most of it follows from {}", format_bytes(sum), list,
       ranks == 1 ? formatted("{} has ", place)
                  : formatted("{} ranks share {}, which has ", ranks, place),
       format_bytes(memory.total),
       never ? "" : formatted(", {} of it free now", format_bytes(memory.available)), causes);
}

void check_room(const RunConfig& config, const LaunchInfo& launch, int ranks, const ConfigSet& keys,
                bool whole_rows, const FrozenParameters& beside) {
  const at::Device device = choose_device(config.train.device, launch.local_rank);
  // A GPU may be this rank's alone under the name that all ranks see (CUDA_VISIBLE_DEVICES).
  const int sharing = device.is_cpu() ? launch.local_size : 1;
  const ParallelConfig& parallel = config.parallel;
  const std::int64_t data = data_ranks(parallel, ranks) * parallel.cp;
  std::vector<MemoryPart> parts =
      memory_need(config, precision_dtypes(config.train.precision), data,
                  device.is_cuda() && parallel.offload == "optimizer", beside);
  const auto check_parts = [&] {
    check_memory(parts, sharing, device_memory(device),
                 device.is_cpu() ? "this machine" : formatted("device {}", device), keys);
  };
  check_parts();
  if (!whole_rows || !device.is_cpu()) return;
  count_activations(config, ranks, launch.rank, parts);
  check_parts();
}

}  // namespace trireme
