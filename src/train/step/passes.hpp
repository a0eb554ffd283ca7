#pragma once
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "model/transformer.hpp"
#include "objective/objective.hpp"
#include "parallel/pipeline/stage_links.hpp"
#include "train/step/activation_count.hpp"
#include "train/step/pass_clock.hpp"

namespace trireme {

/// What runs around the passes of an update; before a pass: when its input is there.
struct PassHooks {
  /// Before micro-batch i of n; of a pipeline before the update (i = 0). True: it is given up.
  std::function<bool(std::int64_t, std::int64_t)> stop_before;
  std::function<void()> before_forward;
  /// `last`: the last pass in which this rank adds gradients of weights.
  std::function<void(bool last)> before_backward;
};

/// Runs any schedule's passes on one rank: what it needs arrives, what it makes leaves, and the
/// gradients of weights are added when their pass comes.
class Passes {
 public:
  /// All must outlive this.
  Passes(Transformer& model, Objective& objective, StageLinks& links, int pp_rank)
      : model_(model), objective_(objective), links_(links), pp_rank_(pp_rank) {}

  Passes(const Passes&) = delete;
  Passes& operator=(const Passes&) = delete;

  /// One update. Losses, whose gradients are those of grad_scale * their sum, are added to
  /// `loss_sum` on the rank with the last stage. False: given up.
  bool run(const pipeline::Schedule& schedule, std::span<const Microbatch> micro_batches,
           double grad_scale, const PassHooks& hooks, ActivationCount& activations,
           at::Tensor& loss_sum);

  /// From here on each pass is timed, on a GPU to its end; null: none.
  void time_with(PassClock* clock) { clock_ = clock; }

  /// Micro-batches of this rank's stages in the last run, the most at any time.
  [[nodiscard]] int most_under_way() const { return most_under_way_; }

  /// Forward passes alone, without tapes. On the rank with the last stage `call` gets each
  /// micro-batch's number and hidden states.
  void run_forward(const pipeline::Schedule& schedule, std::span<const Microbatch> micro_batches,
                   const std::function<void(std::size_t, const at::Tensor&)>& call);

 private:
  /// A micro-batch in a stage, from its forward pass to that of its weights' gradients.
  struct UnderWay {
    ForwardTape tape;
    ObjectiveTape loss;
    std::vector<std::function<void()>> turns;  // what adds gradients of weights
  };

  struct Update;

  void forward(const Update& update, const pipeline::Pass& pass);
  void backward(const Update& update, const pipeline::Pass& pass, bool last);
  void add_weight_grads(const pipeline::Pass& pass);
  void begin(const pipeline::Schedule& schedule, std::span<const Microbatch> micro_batches);
  void run_pass(const Update& update, const pipeline::Pass& pass, bool last);

  Transformer& model_;
  Objective& objective_;
  StageLinks& links_;
  int pp_rank_;
  std::map<std::pair<int, int>, UnderWay> under_way_;  // by stage and micro-batch
  int most_under_way_ = 0;
  PassClock* clock_ = nullptr;
};

}  // namespace trireme
