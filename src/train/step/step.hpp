#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/measures.hpp"
#include "core/timer.hpp"
#include "data/batch.hpp"
#include "device/host_copy.hpp"
#include "model/transformer.hpp"
#include "objective/objective.hpp"
#include "optim/grad_norm.hpp"
#include "optim/loss_scaler.hpp"
#include "optim/optimizer.hpp"
#include "optim/param_ranges.hpp"
#include "optim/weight_average.hpp"
#include "parallel/collectives.hpp"
#include "parallel/mesh.hpp"
#include "parallel/pipeline/stage_p2p.hpp"
#include "parallel/units/grad_reduction.hpp"
#include "train/step/captured_passes.hpp"
#include "train/step/layer_norms.hpp"
#include "train/step/schedule_choice.hpp"
#include "train/step/stage_executor.hpp"

namespace trireme::train {

/// Sums over the ranks of pp at the end of an update: the loss, the gradients of a tied embedding
/// on two stages, and the idle time. Without a pipeline all functions do nothing.
class StageSums {
 public:
  /// Declares the measure bubble_share for a pipeline on CPUs. Both arguments must outlive this
  /// object. Collective over pp.
  StageSums(model::Transformer& model, const parallel::Mesh& mesh, Measures& measures);

  /// Broadcasts loss_sum from the last stage by a sum over pp. `passes`: timer that was started
  /// before the first action. `busy_s`: time of the actions without waiting for other stages.
  /// Returns idle time / busy time over all ranks of pp; nullopt if it is not measured or
  /// `has_passes` is false. Collective over pp.
  std::optional<double> add(at::Tensor& loss_sum, const Timer& passes, double busy_s,
                            bool has_passes);

  /// Returns the group of the two ranks with the tied embedding; null on other ranks.
  [[nodiscard]] comm::Communicator* table_group() const { return table_group_.get(); }

 private:
  model::Transformer& model_;
  const parallel::Mesh& mesh_;
  Measures& measures_;
  std::optional<Measures::Id> bubble_share_;
  std::unique_ptr<comm::Communicator> table_group_;
};

/// Reports the routing of a model with experts as two measures. `aux_loss` is this rank's part of
/// the auxiliary loss. `expert_load_max` is the largest load of an expert in any layer, divided by
/// the mean load, over all ranks (with local steps: of this rank). Does nothing for a model
/// without experts.
class RouterReport {
 public:
  /// All arguments must outlive this object.
  RouterReport(model::Transformer& model, const parallel::Mesh& mesh, Measures& measures)
      : model_(model), mesh_(mesh), measures_(measures) {
    if (!model.config().moe.on()) return;
    aux_loss_ = measures.declare({"aux_loss", Combine::sum});
    expert_load_max_ = measures.declare({"expert_load_max", Combine::max});
  }

  /// Resets the routing statistics. Call it before the first pass of an update.
  void begin() {
    const model::ModelConfig& config = model_.config();
    if (config.moe.on())
      model_.router_statistics().reset(config.moe, config.num_layers, model_.registry().device());
  }

  /// Computes the measures of an update on the device: [2] fp64. Does not wait for the device.
  /// `scale`: factor of its auxiliary loss. Collective over the world, except with local steps.
  [[nodiscard]] device::HostCopy summarize(double scale) const {
    const model::MoeConfig& moe = model_.config().moe;
    if (!moe.on()) return {};
    const model::RouterStatistics& statistics = model_.router_statistics();
    if (!mesh_.has_local_steps())
      parallel::all_reduce(mesh_.world(), statistics.counts, comm::ReduceOp::sum, "load of experts")
          ->wait();
    const auto num_experts = static_cast<double>(moe.num_experts);
    const at::Tensor mean = statistics.counts.sum(1) / num_experts;
    const at::Tensor load = statistics.counts.amax(1) / mean.clamp_min(1.0 / num_experts);
    return device::HostCopy(at::stack({statistics.aux_loss / scale, load.amax()}));
  }

  /// Records the measures of an update; waits for them.
  void record(const device::HostCopy& summary) {
    if (!model_.config().moe.on()) return;
    const at::Tensor& both = summary.read();
    measures_.record(aux_loss_, both[0].item<double>());
    measures_.record(expert_load_max_, both[1].item<double>());
  }

 private:
  model::Transformer& model_;
  const parallel::Mesh& mesh_;
  Measures& measures_;
  Measures::Id aux_loss_ = 0;
  Measures::Id expert_load_max_ = 0;
};

/// Local SGD (parallel.local_steps = K > 1): each dp rank, with its ranks of tp, cp and pp,
/// updates its own replica, and the replicas are averaged after every K steps. Without local
/// steps, all replicas are equal and average() does nothing. Source: Stich, "Local SGD converges
/// fast and communicates little", ICLR 2019.
class ReplicaSync {
 public:
  /// All arguments must outlive this object.
  ReplicaSync(parallel::ParamRegistry& registry, optim::Optimizer& optimizer,
              const parallel::Mesh& mesh)
      : registry_(registry), optimizer_(optimizer), mesh_(mesh) {}

  /// Returns the factor of the gradients: the loss of a replica is divided by update_terms / dp
  /// (the mean number of terms of a dp rank) and not by update_terms.
  [[nodiscard]] double grad_factor() const {
    return mesh_.has_local_steps() ? mesh_.size(parallel::Axis::dp) : 1;
  }

  /// Returns norm and loss of the update over the ranks that share it. Collective over the world.
  [[nodiscard]] optim::GradSummary summarize(const at::Tensor& loss_sum) const;

  /// Records that this rank has changed its weights.
  void updated() { differ_ = mesh_.has_local_steps(); }

  [[nodiscard]] bool differ() const { return differ_; }

  /// Returns true if the replicas must be averaged after `step`.
  [[nodiscard]] bool due(std::int64_t step) const {
    return mesh_.has_local_steps() && step % mesh_.config().local_steps == 0;
  }

  /// Replaces master weights and optimizer state by their mean over the dp ranks, added in rank
  /// order. Collective over dp.
  void average();

 private:
  parallel::ParamRegistry& registry_;
  optim::Optimizer& optimizer_;
  const parallel::Mesh& mesh_;
  bool differ_ = false;
};

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
  parallel::OverlapTimes overlap;
  PassStats passes;
};

/// An update between Step::start() and Step::finish().
struct StartedUpdate {
  UpdateResult result;                          // without the fields that need the values below
  std::function<optim::GradSummary()> summary;  // waits for the device
  device::HostCopy routing;                     // see RouterReport
};

/// The parts that a step works on; all must outlive the step.
struct StepParts {
  model::Transformer& model;
  objective::Objective& objective;
  optim::Optimizer& optimizer;
  optim::LossScaler& scaler;
  const parallel::Mesh& mesh;
  Measures& measures;
  optim::WeightAverage* average = nullptr;  // EMA of the weights; null: none
  std::int64_t layer_norms_every = 0;       // steps between two LayerNorms reports; 0: none
  bool layer_histograms = false;            // LayerNorms also reports histograms
  GraphUse graphs = {};                     // CUDA graphs for micro-batches
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
  /// update that is not skipped, and on a GPU also in a skipped one. It waits for readers of the old
  /// values.
  void before_update(std::function<void()> call) { before_update_ = std::move(call); }

  /// Sets `call(i, n)`, which runs before micro-batch i of n. If it returns true, on all ranks, the
  /// update is cancelled.
  void cancel_before(std::function<bool(std::int64_t, std::int64_t)> call) {
    cancel_before_ = std::move(call);
  }

  /// Runs one update: start() and finish().
  UpdateResult run(std::span<const data::Batch> batches, std::int64_t update_terms,
                   std::int64_t step, std::int64_t update, double lr);

  /// Starts an update. If a loss or gradient is not finite on any rank, no rank changes its weights
  /// or optimizer state (skipped). Returns false if the update was cancelled. On a GPU, the device
  /// may still run the update afterwards. Collective over the world.
  ///   batches       this rank's micro-batches; may be empty
  ///   update_terms  number of loss terms of the whole update, over all ranks and micro-batches;
  ///                 gradients are those of loss sum / update_terms (without local steps)
  ///   step          seed of dropout; the same on all ranks
  ///   update        returns the number of this update, without skipped ones, from 1; the same on
  ///                 all ranks. It is called once, after the passes and before the weights change,
  ///                 and must call finish() if an update was started before.
  [[nodiscard]] bool start(std::span<const data::Batch> batches, std::int64_t update_terms,
                           std::int64_t step, const std::function<std::int64_t()>& update,
                           double lr);

  /// Waits for the values of the update that was started last, and completes it. The weights must
  /// not have changed since. Collective over the world.
  UpdateResult finish();

  /// Returns why an update must be finished before the passes of the next one; "" if it need not.
  [[nodiscard]] std::string reason_to_finish() const;

  /// Returns true if start() does not wait for the device.
  [[nodiscard]] bool starts_ahead() const { return may_apply_ahead_ && updates_in_one_pass(); }

  /// Returns true if an update leaves the gradients as they were before the clip.
  [[nodiscard]] bool updates_in_one_pass() const;

  /// Runs forward passes for a validation. `call` receives the number and the hidden states of each
  /// micro-batch on the rank with the last stage. Collective over pp.
  void forward(std::span<const parallel::Microbatch> micro_batches,
               const std::function<void(std::size_t, const at::Tensor&)>& call);

  /// Averages the replicas if they differ. Call it before a validation, a save or the end of a run.
  void average_replicas();

  [[nodiscard]] const StepParts& parts() const { return parts_; }

  [[nodiscard]] const parallel::StageP2P& links() const { return links_; }

  /// Returns the CUDA graphs of micro-batches; null if there are none.
  [[nodiscard]] const CapturedPasses* captured_passes() const { return captured_.get(); }

  [[nodiscard]] const StageSums& stage_sums() const { return stage_sums_; }

  [[nodiscard]] ScheduleChoice& schedules() { return schedules_; }

  /// Turns the count of PassStats::activation_bytes on or off.
  void count_activations(bool on) { counts_activations_ = on; }

 private:
  ActionHooks pass_hooks(at::Tensor& loss_sum);
  std::function<optim::GradSummary()> summarize_and_apply(const at::Tensor& loss_sum,
                                                          std::int64_t update, double lr);
  void apply(const optim::GradSummary& summary, std::int64_t update, double lr);
  void apply_ahead(const optim::GradSums& sums, std::int64_t update, double lr);
  void update_in_one_pass(std::int64_t update, double lr, const at::Tensor& factor);

  StepParts parts_;
  parallel::ParamRegistry& registry_;
  double clip_norm_;
  bool counts_activations_ = false;
  std::unique_ptr<parallel::GradReduction> reduction_;
  optim::SignStep sign_step_;
  bool may_apply_ahead_;  // a GPU may update before the host knows the norm
  ScheduleChoice schedules_;
  parallel::StageP2P links_;
  std::unique_ptr<CapturedPasses> captured_;
  StageExecutor passes_;
  Measures::Id first_bucket_s_;  // time from the start of the step to the first gradient bucket
  Measures::Id last_grad_s_;     // time from the start of the step to the last complete gradient
  StageSums stage_sums_;
  RouterReport router_;
  LayerNorms layer_norms_;
  ReplicaSync replicas_;
  std::optional<StartedUpdate> started_;
  std::function<void()> before_update_ = [] {};
  std::function<bool(std::int64_t, std::int64_t)> cancel_before_ = [](auto, auto) { return false; };
};

}  // namespace trireme::train
