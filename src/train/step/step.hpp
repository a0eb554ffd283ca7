#pragma once
#include <functional>
#include <optional>
#include <span>

#include "core/measures.hpp"
#include "core/timer.hpp"
#include "data/batch.hpp"
#include "model/transformer.hpp"
#include "objective/objective.hpp"
#include "optim/loss_scaler.hpp"
#include "optim/optimizer.hpp"
#include "parallel/pipeline/stage_links.hpp"
#include "parallel/units/grad_reduction.hpp"
#include "train/step/passes.hpp"

namespace trireme {

/// Of an update, in seconds.
struct CommSeconds {
  double all = 0;      // with bytes under way, or waited for
  double exposed = 0;  // of it, in which this rank only waited
};

/// `gradients`: of the update's; `waited_s`: in all collectives of the update.
CommSeconds comm_seconds(const OverlapTimes& gradients, double waited_s);

/// What one update left, on this rank unless said otherwise.
struct UpdateResult {
  double loss_sum = 0;           // of this rank's terms, on every rank of pp
  std::int64_t num_terms = 0;    // of this rank: what the loss is a mean over (Objective::term)
  std::int64_t num_targets = 0;  // of this rank
  double grad_norm = 0;          // global, before the clip
  bool skipped = false;          // a loss or gradient was not finite: no rank changed its weights
  bool overflow = false;         // skipped, and the fp16 loss scaler has a lower scale to try
  bool dropped = false;  // given up between micro-batches: nothing changed, all else is empty
  OverlapTimes overlap;
  std::int64_t activation_bytes = 0;  // what forward left for backward, the most at any time
  int in_flight = 0;                  // micro-batches of this rank's stages under way, likewise
  /// Of models with experts: this rank's part of the routers' loss, and tokens of the fullest expert of
  /// any layer over the mean, of the update (with local steps of this rank); else absent.
  std::optional<double> aux_loss = {};
  std::optional<double> expert_load_max = {};
  /// Of a pipeline on CPUs: idle over busy time of its ranks in the passes; else absent.
  std::optional<double> bubble_share = {};
};

/// What a step works on; all of it outlives the step.
struct StepParts {
  Transformer& model;
  Objective& objective;
  Optimizer& optimizer;
  LossScaler& scaler;
  const Mesh& mesh;
  Measures& measures;
};

/// One optimizer step: the passes of this rank's micro-batches through its stages, gradients summed over the
/// data ranks while backward runs, global norm, clip, update of this rank's parts.
///
/// With parallel.local_steps K > 1 (local SGD) the dp ranks train on their own, each with its tp and
/// cp: gradients, norm and clip are of their tokens alone, and their loss sum is divided by the
/// mean of what dp ranks have, update_terms / dp: the mean of all dp ranks' gradients is that of
/// the whole update. After every step whose number K divides, and by average_copies(), weights and
/// moments become their mean over the dp ranks. An update that is not finite on one is skipped on
/// all. Source: Stich, "Local SGD converges fast and communicates little", ICLR 2019.
///
/// Failpoints: train.forward, train.backward, train.reduce, train.optimizer; train.overflow and
/// train.bad_loss make a gradient or the loss of this rank not finite.
class Step {
 public:
  Step(const StepParts& parts, double clip_norm);

  /// `call` runs on this rank right before weights and optimizer state change, in every update that
  /// is not skipped: whoever still reads them is waited for there.
  void before_update(std::function<void()> call) { before_update_ = std::move(call); }

  /// `call(i, n)` runs before micro-batch i of n; true, on all ranks alike: the update is given up.
  void stop_before(std::function<bool(std::int64_t, std::int64_t)> call) {
    stop_before_ = std::move(call);
  }

  /// Hidden states of micro-batches, for a validation: `call` gets each one's number and states on
  /// the rank that has the last stage. Collective over the ranks of pp.
  void forward(std::span<const Microbatch> micro_batches,
               const std::function<void(std::size_t, const at::Tensor&)>& call);

  /// Weights and moments of all dp ranks become their mean, where they are not equal already. Before
  /// whatever takes them for one model: a validation, a save, the end of a run.
  void average_copies();

  [[nodiscard]] const StepParts& parts() const { return parts_; }

  /// What it sends through beside the mesh's groups; the second may be null.
  [[nodiscard]] const StageLinks& links() const { return links_; }

  [[nodiscard]] Communicator* table_group() const { return table_group_.get(); }

  /// Schedule auto: what was found, for the updates that follow; none before, and with another. A
  /// resume takes it, and goes on bit for bit: where a tied table has both uses on one rank, the order
  /// of passes shows in sums.
  [[nodiscard]] const std::optional<pipeline::Schedule>& found_schedule() const { return found_; }

  /// The last update ran it.
  [[nodiscard]] bool ran_found_schedule() const { return runs_found_; }

  /// `text`: of a found schedule, for updates of as many micro-batches on the same placement; of
  /// another layout it is passed over. Throws Error as parse_schedule.
  void take_schedule(const std::string& text);

  /// Fills UpdateResult::activation_bytes from here on.
  void count_activations(bool on) { counts_activations_ = on; }

  /// `batches`: this rank's share of the update, possibly none. `update_terms`: what the loss is a
  /// mean over (Objective::term), of the whole update: over all ranks and micro-steps; all gradients
  /// are those of loss sum / update_terms (without local steps). `step` seeds dropout, `update` counts updates that were
  /// not skipped (from 1), both the same on all ranks. A loss or gradient that is not finite on any
  /// rank leaves the weights and the optimizer's state of all ranks as they are (skipped).
  UpdateResult run(std::span<const Batch> batches, std::int64_t update_terms, std::int64_t step,
                   std::int64_t update, double lr);

 private:
  /// The loss, which the last stage has, and the gradients of a table in two. `timer`: since the
  /// first pass; `busy_s`: of that, what this rank did not wait for other stages.
  void add_up_over_stages(at::Tensor& loss_sum, double busy_s, const Timer& timer,
                          UpdateResult& result);

  /// Of an update of so many; what was found where it is for as many.
  void choose_schedule(int micro_batches);

  /// Schedule auto: searches it by how long this rank's passes took, once they are known.
  void search_schedule(std::span<const Microbatch> micro_batches);

  /// What the routers left, `scale` times; collective without local steps.
  void take_router_tally(double scale, UpdateResult& result);

  StepParts parts_;
  ParamRegistry& registry_;
  double clip_norm_;
  bool copies_equal_ = true;  // the dp ranks have the same weights
  bool counts_activations_ = false;
  std::unique_ptr<GradReduction> reduction_;
  pipeline::Schedule schedule_;  // of the last update
  StageLinks links_;
  pipeline::Timing timing_{{pipeline::PassTimes{}}};  // what a searched schedule is searched by
  std::optional<PassClock> clock_;                    // until they are measured
  std::optional<pipeline::Schedule> found_;           // what was searched
  bool runs_found_ = false;                           // schedule_ is that
  int timed_updates_ = 0;
  Passes passes_;
  std::unique_ptr<Communicator> table_group_;  // the two ranks with copies of a tied table
  std::optional<Measures::Id> bubble_share_;   // of pipelines
  std::optional<Measures::Id> aux_loss_;       // of models with experts
  std::optional<Measures::Id> expert_load_max_;
  Measures::Id first_bucket_s_;  // from the step's start until its first gradient bucket left
  Measures::Id last_grad_s_;     // from the step's start until its last gradient was complete
  std::function<void()> before_update_ = [] {};
  std::function<bool(std::int64_t, std::int64_t)> stop_before_ = [](auto, auto) { return false; };
};

}  // namespace trireme
