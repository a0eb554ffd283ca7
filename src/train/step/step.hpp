#pragma once

#include "data/batch.hpp"
#include "objective/objective.hpp"
#include "optim/loss_scaler.hpp"
#include "optim/sign_step.hpp"
#include "parallel/pipeline/stage_links.hpp"
#include "parallel/units/grad_reduction.hpp"
#include "train/step/passes.hpp"
#include "train/step/replica_sync.hpp"
#include "train/step/router_report.hpp"
#include "train/step/schedule_choice.hpp"
#include "train/step/stage_sums.hpp"

namespace trireme {

/// Statistics of one update's forward and backward passes on this rank.
struct PassStats {
  std::int64_t activation_bytes = 0;        // peak of saved activations
  int in_flight = 0;                        // peak of micro-batches in flight, over its stages
  std::optional<double> bubble_share = {};  // see StageSums::add
};

/// Results of one update, on this rank unless stated otherwise.
struct UpdateResult {
  double loss_sum = 0;           // sum over this rank's terms, on every rank of pp
  std::int64_t num_terms = 0;    // this rank's terms: the loss is a mean over all terms
  std::int64_t num_targets = 0;  // this rank's targets
  double grad_norm = 0;          // global norm before clipping
  bool skipped = false;          // a loss or gradient was not finite: no rank changed its weights
  bool overflow = false;         // skipped, and the fp16 loss scaler has a lower scale to try
  bool cancelled = false;  // cancelled between micro-batches: nothing changed, other fields unset
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

/// One optimizer step: forward and backward of this rank's micro-batches, gradient reduction over
/// the data ranks that overlaps backward, global norm, clipping, update of this rank's shards.
/// With local steps (ReplicaSync), gradients, norm and clipping are those of one dp rank.
///
/// Failpoints: train.forward, train.backward, train.reduce, train.optimizer; train.overflow and
/// train.bad_loss make a gradient or the loss of this rank not finite.
class Step {
 public:
  Step(const StepParts& parts, double clip_norm);

  /// Sets a function that runs on this rank before weights and optimizer state change, in every
  /// update that is not skipped. It waits for readers of the old values.
  void before_update(std::function<void()> call) { before_update_ = std::move(call); }

  /// Sets `call(i, n)`, which runs before micro-batch i of n. If it returns true, on all ranks, the
  /// update is cancelled.
  void cancel_before(std::function<bool(std::int64_t, std::int64_t)> call) {
    cancel_before_ = std::move(call);
  }

  /// Runs one update. If a loss or gradient is not finite on any rank, no rank changes its weights
  /// or optimizer state (skipped). Collective over the world.
  ///   batches       this rank's micro-batches; may be empty
  ///   update_terms  number of loss terms of the whole update, over all ranks and micro-batches;
  ///                 gradients are those of loss sum / update_terms (without local steps)
  ///   step          seed of dropout; the same on all ranks
  ///   update        number of this update, without skipped ones, from 1; the same on all ranks
  UpdateResult run(std::span<const Batch> batches, std::int64_t update_terms, std::int64_t step,
                   std::int64_t update, double lr);

  /// Runs forward passes for a validation. `call` receives the number and the hidden states of each
  /// micro-batch on the rank with the last stage. Collective over pp.
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
  Measures::Id first_bucket_s_;  // time from the start of the step to the first gradient bucket
  Measures::Id last_grad_s_;     // time from the start of the step to the last complete gradient
  StageSums stage_sums_;
  RouterReport router_;
  ReplicaSync replicas_;
  std::function<void()> before_update_ = [] {};
  std::function<bool(std::int64_t, std::int64_t)> cancel_before_ = [](auto, auto) { return false; };
};

}  // namespace trireme
