#pragma once
#include <cstdint>
#include <optional>
#include <vector>

#include "model/lora/lora_config.hpp"
#include "model/stages/stages.hpp"
#include "ops/path.hpp"
#include "optim/config.hpp"
#include "parallel/config.hpp"
#include "parallel/param_registry.hpp"
#include "pipeline/schedule.hpp"

namespace trireme {

struct RunConfig;

/// What every formula of one update is a function of.
struct UpdateFacts {
  ModelConfig model;
  ParallelConfig parallel;
  ParamDTypes dtypes;
  std::int64_t slots = 2;        // of the optimizer: tensors of the weights' size
  std::int64_t rows = 1;         // sequences of a micro-batch
  std::int64_t length = 1;       // tokens of a sequence
  std::int64_t micro_steps = 1;  // of a rank
  int ranks = 1;
  int node_replicas = 0;  // hierarchical sums: copies on a node; 0: sums in one level
  bool fused = true;      // fused kernels: what activations they keep is known
  bool averages = false;  // local steps: the update ends with an average
  LoraConfig lora = {};   // on: adapters alone are trained
  // Rows are as long as their pairs, or a frozen model runs beside: no formula for what follows
  // from tokens.
  bool tokens_vary = false;
  // A plan: experts of other ranks' tokens are used evenly, so that what they keep is known.
  bool even_experts = false;
  // What ran, where it is not what `parallel` alone tells: schedule auto's, once it is found.
  std::optional<pipeline::Schedule> found_schedule = {};

  /// Of all ranks of a pipeline; without one, the one stage's.
  [[nodiscard]] pipeline::Schedule schedule() const;

  [[nodiscard]] std::int64_t data_ranks() const;  // dp x cp
  [[nodiscard]] std::int64_t shards() const;      // of them, those that hold one copy together

  /// The same of experts in their own grid: edp, and of them those that hold one copy together.
  [[nodiscard]] std::int64_t expert_ranks() const;
  [[nodiscard]] std::int64_t expert_shards() const;

  /// Experts in a grid of their own are units of their own.
  [[nodiscard]] bool folds_experts() const {
    return model.moe.on() && trireme::folds_experts(parallel);
  }

  /// ZeRO-3: a rank keeps its parts of the weights alone.
  [[nodiscard]] bool weights_sharded() const { return parallel.zero == 3 && shards() > 1; }

  /// Parameters of fewer elements lie in a unit of their own; 0: there is none.
  [[nodiscard]] std::int64_t persist() const {
    return weights_sharded() ? parallel.zero_persist : 0;
  }

  /// Bytes of an element that the model computes with, and of a master weight.
  [[nodiscard]] std::int64_t compute_size() const {
    return static_cast<std::int64_t>(c10::elementSize(dtypes.compute));
  }

  [[nodiscard]] std::int64_t main_size() const {
    return static_cast<std::int64_t>(c10::elementSize(dtypes.main));
  }

  /// Master weights are a copy of their own.
  [[nodiscard]] bool has_main_copy() const {
    return dtypes.compute != dtypes.main || parallel.offload == "optimizer";
  }

  /// Tokens of a micro-batch on one rank of cp.
  [[nodiscard]] std::int64_t tokens() const { return rows * length / parallel.cp; }

  /// Ranks that share the rows of the residual stream, the rows of one rank, and their bytes: the
  /// input of a block and a message between two stages.
  [[nodiscard]] std::int64_t stream_ranks() const;

  [[nodiscard]] std::int64_t stream_rows() const { return rows * length / stream_ranks(); }

  [[nodiscard]] std::int64_t stream_bytes() const;

  [[nodiscard]] std::int64_t replicas() const { return data_ranks() / shards(); }

  /// Any unit lies in parts of several ranks.
  [[nodiscard]] bool has_parts() const;

  /// The data ranks train on their own for some steps.
  [[nodiscard]] bool trains_alone() const;

  /// Backward passes leave whole units of gradients, one after another.
  [[nodiscard]] bool grads_leave_each_pass() const;
};

/// The update of a rank: its micro-batches.
struct UpdateShape {
  std::int64_t rows = 1;
  std::int64_t length = 1;
  std::int64_t micro_steps = 1;
  std::int64_t step = 1;  // from 1
  ops::Path path = ops::Path::fast;
};

/// Without what a mesh adds: levels of nodes, averages of local steps.
UpdateFacts update_facts(const ModelConfig& model, const OptimConfig& optim,
                         const ParamDTypes& dtypes, const ParallelConfig& parallel, int ranks,
                         const UpdateShape& update, const LoraConfig& lora);

UpdateFacts update_facts(const ModelConfig& model, const OptimConfig& optim,
                         const ParamDTypes& dtypes, const Mesh& mesh, const UpdateShape& update,
                         const LoraConfig& lora = {});

/// Returns the facts of a run before its first update: every row of a micro-batch has train.seq_len
/// tokens. `config` is resolved.
UpdateFacts facts_of_run(const RunConfig& config, int ranks);

RankCoords coords_of(const UpdateFacts& facts, int rank);

}  // namespace trireme
