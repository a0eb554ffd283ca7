#pragma once
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "device/memory_count.hpp"
#include "model/transformer.hpp"
#include "objective/objective.hpp"
#include "parallel/pipeline/stage_p2p.hpp"
#include "parallel/units/unit_weights.hpp"
#include "train/step/captured_passes.hpp"

namespace trireme::train {

/// Functions that run around the pipeline actions of an update. Functions before an action run when
/// its input has arrived.
struct ActionHooks {
  /// Runs before micro-batch i of n; in a pipeline only before the update (i = 0). If it returns
  /// true, the update is cancelled.
  std::function<bool(std::int64_t, std::int64_t)> cancel_before;
  std::function<void()> before_forward;
  /// `last` is true for the last action in which this rank adds weight gradients.
  std::function<void(bool last)> before_backward;
  /// Receives the duration of each action in seconds, without waiting for other stages; on a GPU
  /// until the action is complete. If it is empty, actions are not timed.
  std::function<void(const pipeline::StageAction&, double)> action_took = {};
};

/// Counts the bytes of saved activations, without gathered weights. Does nothing unless `on` is
/// true.
class ActivationCount {
 public:
  ActivationCount(const parallel::UnitWeights& weights, bool on) : weights_(weights) {
    if (on) memory_.emplace();
  }

  void before_forward() {
    if (memory_) before_ = own_bytes();
  }

  /// `others`: bytes of saved inputs from another stage minus bytes of outputs for another stage.
  void after_forward(std::size_t micro_batch, std::int64_t others = 0) {
    if (!memory_) return;
    kept_[micro_batch] = own_bytes() - before_ + others;
    std::int64_t all = 0;
    for (const auto& [number, bytes] : kept_) all += bytes;
    peak_ = std::max(peak_, all);
  }

  void after_backward(std::size_t micro_batch) { kept_.erase(micro_batch); }

  [[nodiscard]] bool is_on() const { return memory_.has_value(); }

  /// Returns the largest number of bytes at any time.
  [[nodiscard]] std::int64_t peak_bytes() const { return peak_; }

 private:
  [[nodiscard]] std::int64_t own_bytes() const {
    return memory_->live_bytes() - weights_.gathered_bytes();
  }

  const parallel::UnitWeights& weights_;
  std::optional<device::MemoryCount> memory_;
  std::int64_t before_ = 0;
  std::map<std::size_t, std::int64_t> kept_;
  std::int64_t peak_ = 0;
};

/// Runs the pipeline actions of a schedule on one rank: receives inputs, sends outputs, and adds
/// weight gradients when the schedule says so.
class StageExecutor {
 public:
  /// All arguments must outlive this object. `captured`: CUDA graphs for the passes of whole
  /// micro-batches; null: none.
  StageExecutor(model::Transformer& model, objective::Objective& objective,
                parallel::StageP2P& links, int pp_rank, CapturedPasses* captured = nullptr)
      : model_(model),
        objective_(objective),
        links_(links),
        pp_rank_(pp_rank),
        captured_(captured) {}

  StageExecutor(const StageExecutor&) = delete;
  StageExecutor& operator=(const StageExecutor&) = delete;

  /// Runs one update. Adds the losses to `loss_sum` on the rank with the last stage. Gradients are
  /// those of grad_scale * loss sum. Returns false if the update was cancelled.
  bool run(const pipeline::Schedule& schedule, std::span<const parallel::Microbatch> micro_batches,
           double grad_scale, const ActionHooks& hooks, ActivationCount& activations,
           at::Tensor& loss_sum);

  /// Returns the largest number of micro-batches in flight on this rank's stages in the last run.
  [[nodiscard]] int max_in_flight() const { return max_in_flight_; }

 private:
  /// A micro-batch in a stage, from its forward pass until its weight gradients are added.
  struct UnderWay {
    model::StageActivations saved;
    objective::ObjectiveGrads loss;
    std::vector<std::function<void()>> turns;  // deferred weight gradients
  };

  struct Update;

  void forward(const Update& update, const pipeline::StageAction& pass);
  void backward(const Update& update, const pipeline::StageAction& pass, bool last);
  void add_weight_grads(const pipeline::StageAction& pass);
  void begin(const pipeline::Schedule& schedule,
             std::span<const parallel::Microbatch> micro_batches);
  void run_pass(const Update& update, const pipeline::StageAction& pass, bool last);
  /// Runs action `i`, a forward pass, and its backward pass, which follows.
  void run_micro_batch(const Update& update, std::span<const pipeline::StageAction> list,
                       std::size_t i);

  model::Transformer& model_;
  objective::Objective& objective_;
  parallel::StageP2P& links_;
  int pp_rank_;
  CapturedPasses* captured_;
  std::map<std::pair<int, int>, UnderWay> under_way_;  // by stage and micro-batch
  int max_in_flight_ = 0;
};

}  // namespace trireme::train
