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
#include "parallel/pipeline/stage_links.hpp"
#include "parallel/units/unit_weights.hpp"

namespace trireme {

/// Functions that run around the passes of an update. Those before a pass run when its input is
/// there.
struct PassHooks {
  /// Runs before micro-batch i of n; in a pipeline before the update (i = 0). True cancels the
  /// update.
  std::function<bool(std::int64_t, std::int64_t)> cancel_before;
  std::function<void()> before_forward;
  /// `last`: the last pass in which this rank adds gradients of weights.
  std::function<void(bool last)> before_backward;
  /// Gets the seconds of each pass, on a GPU to its end, without the wait for other stages. Empty:
  /// passes are not timed.
  std::function<void(const pipeline::Pass&, double)> pass_took;
};

/// Counts the bytes that forward passes leave for their backward passes, without gathered weights.
/// Does nothing unless it is on.
class ActivationCount {
 public:
  ActivationCount(const UnitWeights& weights, bool on) : weights_(weights) {
    if (on) memory_.emplace();
  }

  void before_forward() {
    if (memory_) before_ = own_bytes();
  }

  /// `others`: bytes that the pass keeps and another made, less those that it made for another.
  void after_forward(std::size_t micro_batch, std::int64_t others = 0) {
    if (!memory_) return;
    kept_[micro_batch] = own_bytes() - before_ + others;
    std::int64_t all = 0;
    for (const auto& [number, bytes] : kept_) all += bytes;
    peak_ = std::max(peak_, all);
  }

  void after_backward(std::size_t micro_batch) { kept_.erase(micro_batch); }

  /// Returns the most bytes at any time.
  [[nodiscard]] std::int64_t peak_bytes() const { return peak_; }

 private:
  [[nodiscard]] std::int64_t own_bytes() const {
    return memory_->live_bytes() - weights_.gathered_bytes();
  }

  const UnitWeights& weights_;
  std::optional<MemoryCount> memory_;
  std::int64_t before_ = 0;
  std::map<std::size_t, std::int64_t> kept_;
  std::int64_t peak_ = 0;
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
  /// `loss_sum` on the rank with the last stage. Returns false if the update was cancelled.
  bool run(const pipeline::Schedule& schedule, std::span<const Microbatch> micro_batches,
           double grad_scale, const PassHooks& hooks, ActivationCount& activations,
           at::Tensor& loss_sum);

  /// Micro-batches of this rank's stages in the last run, the most at any time.
  [[nodiscard]] int most_under_way() const { return most_under_way_; }

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
};

}  // namespace trireme
