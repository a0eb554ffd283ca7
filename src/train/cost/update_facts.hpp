#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "model/fp8_linears.hpp"
#include "model/lora/lora_config.hpp"
#include "model/stages/stages.hpp"
#include "ops/path.hpp"
#include "optim/config.hpp"
#include "parallel/config.hpp"
#include "parallel/param_registry.hpp"
#include "pipeline/schedule.hpp"

namespace trireme::train {

struct RunConfig;

/// The input of all formulas of one optimizer step.
struct UpdateFacts {
  model::ModelConfig model;
  parallel::ParallelConfig parallel;
  device::ParamDTypes dtypes;
  optim::OptimConfig optim = {};
  std::int64_t rows = 1;         // sequences per micro batch
  std::int64_t length = 1;       // tokens per sequence
  std::int64_t micro_steps = 1;  // gradient-accumulation steps
  int ranks = 1;
  int node_replicas = 0;        // hierarchical reduction: replicas on a node; 0: one level
  bool fused = true;            // fused kernels; their saved activations are known
  bool weight_average = false;  // train.ema_decay: an EMA of the weights
  bool averages = false;        // local steps: this step ends with an average
  model::LoraConfig lora = {};  // on: only adapters are trained
  // Rows have different lengths, or a frozen model runs, too: values that depend on tokens have no
  // formula.
  bool tokens_vary = false;
  model::Fp8Mode fp8 = model::Fp8Mode::off;
  bool fp8_history = false;  // delayed: the scales of this step come from earlier ones
  bool reward_head = false;  // a reward head in a unit of its own (Task::trains_reward_head)
  // For planning: assume that experts receive equal numbers of tokens.
  bool even_experts = false;
  // The schedule that `schedule = auto` found.
  std::optional<pipeline::Schedule> found_schedule = {};

  /// Returns the number of tensors of optimizer state per weight tensor.
  [[nodiscard]] std::int64_t slots() const;

  /// Returns slots() and the EMA of the weights, which has the bytes of one more.
  [[nodiscard]] std::int64_t state_slots() const { return slots() + (weight_average ? 1 : 0); }

  /// Returns the pipeline schedule; without a pipeline, that of one stage.
  [[nodiscard]] pipeline::Schedule schedule() const;

  [[nodiscard]] std::int64_t data_ranks() const;  // dp x cp
  [[nodiscard]] std::int64_t shards() const;      // data ranks that shard one replica

  /// Data ranks of experts in the expert grid (edp), and those that shard one replica.
  [[nodiscard]] std::int64_t expert_ranks() const;
  [[nodiscard]] std::int64_t expert_shards() const;

  /// Returns true if experts are in a separate expert grid, with FSDP units of their own.
  [[nodiscard]] bool has_expert_grid() const {
    return model.moe.on() && trireme::parallel::has_expert_grid(parallel);
  }

  /// Returns true under ZeRO-3, where a rank keeps only its shard of the weights.
  [[nodiscard]] bool weights_sharded() const { return parallel.zero == 3 && shards() > 1; }

  /// Returns the limit below which parameters go into the unit of small parameters; 0: no such
  /// unit.
  [[nodiscard]] std::int64_t persist() const {
    return weights_sharded() ? parallel.zero_persist : 0;
  }

  /// Bytes per element of weights for computation, and of master weights.
  [[nodiscard]] std::int64_t compute_size() const {
    return static_cast<std::int64_t>(c10::elementSize(dtypes.compute));
  }

  [[nodiscard]] std::int64_t master_size() const {
    return static_cast<std::int64_t>(c10::elementSize(dtypes.main));
  }

  /// Returns true if master weights are a separate copy.
  [[nodiscard]] bool has_master_copy() const {
    return dtypes.compute != dtypes.main || parallel.offload == "optimizer";
  }

  /// Returns the tokens of a micro batch on one rank of cp.
  [[nodiscard]] std::int64_t tokens() const { return rows * length / parallel.cp; }

  /// The ranks that shard the residual stream, the rows on one rank, and their bytes: the size of a
  /// block's input and of a message between two stages.
  [[nodiscard]] std::int64_t stream_ranks() const;

  [[nodiscard]] std::int64_t stream_rows() const { return rows * length / stream_ranks(); }

  [[nodiscard]] std::int64_t stream_bytes() const;

  [[nodiscard]] std::int64_t replicas() const { return data_ranks() / shards(); }

  /// Returns true if any FSDP unit is sharded.
  [[nodiscard]] bool has_parts() const;

  /// Returns true with local steps, where data ranks train independently for some steps.
  [[nodiscard]] bool has_local_steps() const;

  /// Returns true if gradients are reduced unit by unit after each backward pass.
  [[nodiscard]] bool grads_leave_each_pass() const;
};

/// The shape of a rank's optimizer step.
struct UpdateShape {
  std::int64_t rows = 1;
  std::int64_t length = 1;
  std::int64_t micro_steps = 1;
  std::int64_t step = 1;  // number of the step, from 1
  ops::Path path = ops::Path::fast;
  model::Fp8Mode fp8 = model::Fp8Mode::off;
};

/// Returns the facts without those of a mesh: node levels and averages of local steps.
UpdateFacts update_facts(const model::ModelConfig& model, const optim::OptimConfig& optim,
                         const device::ParamDTypes& dtypes,
                         const parallel::ParallelConfig& parallel, int ranks,
                         const UpdateShape& update, const model::LoraConfig& lora);

UpdateFacts update_facts(const model::ModelConfig& model, const optim::OptimConfig& optim,
                         const device::ParamDTypes& dtypes, const parallel::Mesh& mesh,
                         const UpdateShape& update, const model::LoraConfig& lora = {});

/// Returns the parts of the model that the FLOPs of a token count.
model::TrainedParts trained_parts(const UpdateFacts& facts);

/// Returns the facts of a run, assuming that every row has train.seq_len tokens. `config` must be
/// resolved.
UpdateFacts facts_of_run(const RunConfig& config, int ranks);

parallel::RankCoords coords_of(const UpdateFacts& facts, int rank);

}  // namespace trireme::train
