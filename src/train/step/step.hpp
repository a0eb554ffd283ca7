#pragma once

#include "data/batch.hpp"
#include "objective/objective.hpp"
#include "optim/loss_scaler.hpp"
#include "optim/param_ranges.hpp"
#include "parallel/pipeline/stage_links.hpp"
#include "parallel/units/grad_reduction.hpp"
#include "train/step/passes.hpp"
#include "train/step/replica_sync.hpp"
#include "train/step/router_report.hpp"
#include "train/step/schedule_choice.hpp"
#include "train/step/stage_sums.hpp"

namespace trireme {

/// Statistics of the passes of one update on this rank.
struct PassStats {
  std::int64_t activation_bytes = 0;        // the most that forward passes left for backward passes
  int in_flight = 0;                        // the most micro-batches at any time, over its stages
  std::optional<double> bubble_share = {};  // see StageSums::add
};

/// Results of one update, on this rank unless stated otherwise.
struct UpdateResult {
  double loss_sum = 0;           // of this rank's terms, on every rank of pp
  std::int64_t num_terms = 0;    // of this rank: the loss is a mean over them (Objective::term)
  std::int64_t num_targets = 0;  // of this rank
  double grad_norm = 0;          // global, before the clip
  bool skipped = false;          // a loss or gradient was not finite: no rank changed its weights
  bool overflow = false;         // skipped, and the fp16 loss scaler has a lower scale to try
  bool cancelled = false;  // cancelled between micro-batches: nothing changed, all else is empty
  OverlapTimes overlap;
  PassStats passes;
};

/// The parts that a step works on; all must outlive the step.
struct StepParts {
  Transformer& model;
  Objective& objective;
  Optimizer& optimizer;
  LossScaler& scaler;
  const Mesh& mesh;
  Measures& measures;
};

/// One optimizer step: the passes of this rank's micro-batches through its stages, gradients summed
/// over the data ranks while backward runs, global norm, clip, update of this rank's shards. With
/// local steps (ReplicaSync), gradients, norm and clip are those of one dp rank.
///
/// Failpoints: train.forward, train.backward, train.reduce, train.optimizer; train.overflow and
/// train.bad_loss make a gradient or the loss of this rank not finite.
class Step {
 public:
  Step(const StepParts& parts, double clip_norm);

  /// `call` runs on this rank before weights and optimizer state change, in every update that is not
  /// skipped. It waits for readers of the old values.
  void before_update(std::function<void()> call) { before_update_ = std::move(call); }

  /// `call(i, n)` runs before micro-batch i of n. If it returns true, on all ranks, the update is
  /// cancelled.
  void cancel_before(std::function<bool(std::int64_t, std::int64_t)> call) {
    cancel_before_ = std::move(call);
  }

  /// Runs one update. `batches`: this rank's share of the update, may be empty. `update_terms`: the
  /// number of terms of the whole update, over all ranks and micro-batches; all gradients are those
  /// of loss sum / update_terms (without local steps). `step` seeds dropout. `update` counts updates
  /// that were not skipped, from 1. Both are the same on all ranks. If a loss or gradient is not
  /// finite on any rank, no rank changes its weights or optimizer state (skipped).
  UpdateResult run(std::span<const Batch> batches, std::int64_t update_terms, std::int64_t step,
                   std::int64_t update, double lr);

  /// Runs forward passes for a validation. `call` gets the number and the hidden states of each
  /// micro-batch, on the rank with the last stage. Collective over the ranks of pp.
  void forward(std::span<const Microbatch> micro_batches,
               const std::function<void(std::size_t, const at::Tensor&)>& call);

  /// Averages the replicas if they differ. Call it before a validation, a save or the end of a run.
  void average_replicas();

  [[nodiscard]] const StepParts& parts() const { return parts_; }

  [[nodiscard]] const StageLinks& links() const { return links_; }

  [[nodiscard]] const StageSums& stage_sums() const { return stage_sums_; }

  [[nodiscard]] ScheduleChoice& schedules() { return schedules_; }

  /// Turns the count of PassStats::activation_bytes on or off.
  void count_activations(bool on) { counts_activations_ = on; }

 private:
  PassHooks pass_hooks(at::Tensor& loss_sum);
  void apply(const GradSummary& summary, std::int64_t update, double lr);

  StepParts parts_;
  ParamRegistry& registry_;
  double clip_norm_;
  bool counts_activations_ = false;
  std::unique_ptr<GradReduction> reduction_;
  SignStep sign_step_;
  ScheduleChoice schedules_;
  StageLinks links_;
  Passes passes_;
  Measures::Id first_bucket_s_;  // from the step's start until its first gradient bucket left
  Measures::Id last_grad_s_;     // from the step's start until its last gradient was complete
  StageSums stage_sums_;
  RouterReport router_;
  ReplicaSync replicas_;
  std::function<void()> before_update_ = [] {};
  std::function<bool(std::int64_t, std::int64_t)> cancel_before_ = [](auto, auto) { return false; };
};

}  // namespace trireme
