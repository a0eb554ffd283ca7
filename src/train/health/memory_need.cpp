#include "train/health/memory_need.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "device/device.hpp"
#include "train/cost/memory_formula.hpp"
#include "train/cost/state_bytes.hpp"

namespace trireme::train {
namespace {

/// The facts of a run that determine the memory of a model beside the trained one.
struct RunFacts {
  const RunConfig& config;
  const UpdateFacts& update;
  device::ParamDTypes dtypes;
  int ranks;
  bool offloaded;
  const std::vector<std::string>& shape;  // keys of the shape of the trained model
};

MemoryPart memory_of(const ModelBeside& beside, const RunFacts& run) {
  const model::ModelConfig& model = run.config.model;
  if (beside.kind == ModelBeside::Kind::frozen) {
    return {"the task's frozen model",
            weight_bytes(run.update, mean_elements(run.update, beside.count, beside.experts)),
            beside.key.empty() ? run.shape : std::vector{beside.key}};
  }
  if (beside.kind == ModelBeside::Kind::copy) {
    return {"the copy of the whole model that generates answers",
            model.num_parameters_wide() * static_cast<double>(run.update.compute_size()),
            run.shape};
  }
  const UpdateFacts whole = update_facts(model, run.config.optim, run.dtypes, run.config.parallel,
                                         run.ranks, UpdateShape{}, {});
  const StateBytes critic = state_bytes(whole, mean_elements(whole).trained);
  const bool two_copies = run.update.has_master_copy();
  double bytes = critic.grads;
  if (!run.offloaded) bytes += critic.optimizer + (two_copies ? critic.main : critic.weights);
  if (two_copies || run.offloaded) bytes += critic.weights;
  return {"the critic", bytes, {"rl.objective"}};
}

}  // namespace

std::vector<MemoryPart> memory_need(const RunConfig& config, device::ParamDTypes dtypes,
                                    std::int64_t data_ranks, bool offloaded,
                                    const std::vector<ModelBeside>& beside) {
  const model::ModelConfig& model = config.model;
  const parallel::ParallelConfig& parallel = config.parallel;
  const auto ranks = static_cast<int>(data_ranks * parallel.tp * parallel.pp);
  UpdateFacts facts =
      update_facts(model, config.optim, dtypes, parallel, ranks, UpdateShape{}, config.lora);
  facts.weight_average = config.train.ema_decay > 0;
  const MeanElements elements = mean_elements(facts);
  const StateBytes state = state_bytes(facts, elements.trained);
  const bool two_copies = facts.has_master_copy();
  std::vector<std::string> shape{"model.num_layers", "model.hidden_size", "model.intermediate_size",
                                 "model.num_heads",  "model.head_dim",    "model.vocab_size"};
  if (model.moe.on())
    shape.insert(shape.end(), {"model.num_experts", "model.moe_intermediate_size"});
  std::vector<MemoryPart> parts{{"gradients", state.grads, shape}};
  if (!offloaded) {
    parts.insert(parts.begin(), {"weights", two_copies ? state.main : state.weights, shape});
    parts.push_back({"optimizer state", state.optimizer, shape});
  }
  if (two_copies || offloaded) parts.push_back({"compute weights", state.weights, shape});
  if (config.lora.on())
    parts.push_back({"frozen weights", weight_bytes(facts, elements.frozen), shape});
  for (const ModelBeside& other : beside)
    parts.push_back(memory_of(other, {config, facts, dtypes, ranks, offloaded, shape}));
  // Each position has cos and sin for half a head.
  const double angle = dtypes.compute == at::kDouble ? sizeof(double) : sizeof(float);
  parts.push_back(
      {"rotary tables",
       static_cast<double>(model.max_seq_len) * static_cast<double>(model.head_dim) * angle,
       {"model.max_seq_len", "model.head_dim"}});
  // The product is in floating point, because absurd sizes must not overflow.
  const double stream_rows = static_cast<double>(config.train.micro_batch) *
                             static_cast<double>(config.train.seq_len) /
                             static_cast<double>(facts.stream_ranks());
  parts.push_back(
      {"block inputs",
       stream_rows * static_cast<double>(model.hidden_size) *
           static_cast<double>(model.num_layers) / static_cast<double>(parallel.pp) *
           static_cast<double>(facts.compute_size()),
       {"train.micro_batch", "train.seq_len", "model.hidden_size", "model.num_layers"}});
  return parts;
}

void count_activations(const RunConfig& config, int ranks, int rank,
                       std::vector<MemoryPart>& parts) {
  const auto bytes =
      static_cast<double>(memory_formula(facts_of_run(config, ranks), rank).activation_peak_bytes);
  if (bytes < parts.back().bytes) return;  // -1: unknown
  parts.back().what = "activations";
  parts.back().bytes = bytes;
}

void check_memory(const std::vector<MemoryPart>& parts, int ranks, const MachineMemory& memory,
                  const std::string& place, const config::ConfigSet& keys) {
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

void check_free_memory(const RunConfig& config, const comm::LaunchInfo& launch, int ranks,
                       const config::ConfigSet& keys, bool whole_rows,
                       const std::vector<ModelBeside>& beside) {
  const at::Device device = device::choose_device(config.train.device, launch.local_rank);
  // With CUDA_VISIBLE_DEVICES, ranks may use different GPUs under the same name.
  const int sharing = device.is_cpu() ? launch.local_size : 1;
  const parallel::ParallelConfig& parallel = config.parallel;
  const std::int64_t data = parallel::data_ranks(parallel, ranks) * parallel.cp;
  std::vector<MemoryPart> parts =
      memory_need(config, device::precision_dtypes(config.train.precision), data,
                  device.is_cuda() && parallel.offload == "optimizer", beside);
  const auto check_parts = [&] {
    check_memory(parts, sharing, device::device_memory(device),
                 device.is_cpu() ? "this machine" : formatted("device {}", device), keys);
  };
  check_parts();
  if (!whole_rows || !device.is_cpu()) return;
  count_activations(config, ranks, launch.rank, parts);
  check_parts();
}

}  // namespace trireme::train
