#include "pipeline/greedy.hpp"

#include <algorithm>
#include <array>

#include "core/error.hpp"

namespace trireme::pipeline {
namespace {

/// One stage while the schedule grows. Actions of a kind run in micro-batch order.
struct StageState {
  int rank = 0;
  int later_on_rank = 0;  // number of later stages on the same rank
  int forwards = 0;       // actions started so far, per kind
  int input_grads = 0;
  int weight_grads = 0;
  std::vector<double> forward_ends = {};
  std::vector<double> input_grad_ends = {};
};

struct Candidate {
  StageAction action;
  double begin = kNever;
};

/// Builds the schedule action by action. An action only changes when the next actions of its own
/// rank and of the ranks with neighboring stages can start.
class Grower {
 public:
  Grower(const Placement& placement, int micro_batches, const Timing& timing,
         const GreedyRules& rules)
      : timing_(timing),
        rules_(rules),
        micro_batches_(micro_batches),
        schedule_{placement, micro_batches, {}},
        free_(static_cast<std::size_t>(placement.ranks)),
        in_flight_(free_.size()),
        own_stages_(free_.size()),
        next_(free_.size()) {
    schedule_.lists.resize(free_.size());
    stages_.resize(placement.rank_of_stage.size());
    for (int stage = placement.stages(); stage-- > 0;) {
      const int rank = placement.rank_of_stage[static_cast<std::size_t>(stage)];
      std::vector<int>& mine = own_stages_[static_cast<std::size_t>(rank)];
      stages_[static_cast<std::size_t>(stage)] = {.rank = rank,
                                                  .later_on_rank = static_cast<int>(mine.size())};
      mine.push_back(stage);
      most_stages_ = std::max(most_stages_, static_cast<int>(mine.size()));
    }
  }

  Schedule grow() {
    const std::size_t kinds = rules_.split_backward ? 3 : 2;
    const std::size_t actions = stages_.size() * static_cast<std::size_t>(micro_batches_) * kinds;
    for (std::size_t rank = 0; rank < free_.size(); ++rank) next_[rank] = next_of(rank);
    for (std::size_t i = 0; i < actions; ++i) {
      const Candidate first = *std::ranges::min_element(next_, {}, &Candidate::begin);
      TRIREME_ASSERT(first.begin < kNever);
      take(first);
      for (const int stage : {first.action.stage - 1, first.action.stage, first.action.stage + 1}) {
        if (stage < 0 || stage >= std::ssize(stages_)) continue;
        const auto rank = static_cast<std::size_t>(stages_[static_cast<std::size_t>(stage)].rank);
        next_[rank] = next_of(rank);
      }
    }
    return std::move(schedule_);
  }

 private:
  [[nodiscard]] bool has_free_slot(const StageState& stage) const {
    if (rules_.max_in_flight == 0) return true;
    const int limit = std::max(rules_.max_in_flight, most_stages_);
    return in_flight_[static_cast<std::size_t>(stage.rank)] < limit - stage.later_on_rank;
  }

  [[nodiscard]] double arrival(double end, int from, int to) const {
    const auto rank = [this](int stage) { return stages_[static_cast<std::size_t>(stage)].rank; };
    return end + (rank(from) == rank(to) ? 0 : timing_.transfer);
  }

  /// Returns when the inputs of the stage's next action of this kind are available.
  [[nodiscard]] double ready(ActionKind kind, int index) const {
    const StageState& stage = stages_[static_cast<std::size_t>(index)];
    if (kind == ActionKind::forward) {
      const auto i = static_cast<std::size_t>(stage.forwards);
      if (stage.forwards == micro_batches_ || !has_free_slot(stage)) return kNever;
      if (index == 0) return 0;
      const auto& before = stages_[static_cast<std::size_t>(index) - 1].forward_ends;
      return i < before.size() ? arrival(before[i], index - 1, index) : kNever;
    }
    if (kind == ActionKind::weight_grad) {
      const auto i = static_cast<std::size_t>(stage.weight_grads);
      return i < stage.input_grad_ends.size() ? stage.input_grad_ends[i] : kNever;
    }
    const auto i = static_cast<std::size_t>(stage.input_grads);
    if (i >= stage.forward_ends.size()) return kNever;
    if (index + 1 == std::ssize(stages_)) return stage.forward_ends[i];
    const auto& after = stages_[static_cast<std::size_t>(index) + 1].input_grad_ends;
    if (i >= after.size()) return kNever;
    return std::max(stage.forward_ends[i], arrival(after[i], index + 1, index));
  }

  /// Returns the next action of this rank: the one that can start earliest. Ties go to the first
  /// kind in the rules' order, then to the latest stage.
  [[nodiscard]] Candidate next_of(std::size_t rank) const {
    const ActionKind backward =
        rules_.split_backward ? ActionKind::input_grad : ActionKind::backward;
    std::array order{backward, ActionKind::forward, ActionKind::weight_grad};
    if (rules_.forward_first) std::swap(order[0], order[1]);
    Candidate best;
    for (const ActionKind kind : order) {
      if (kind == ActionKind::weight_grad && !rules_.split_backward) continue;
      for (const int index : own_stages_[rank]) {
        const StageState& stage = stages_[static_cast<std::size_t>(index)];
        const double begin = std::max(ready(kind, index), free_[rank]);
        if (begin < best.begin) best = {{kind, index, number(kind, stage)}, begin};
      }
    }
    return best;
  }

  static int number(ActionKind kind, const StageState& stage) {
    if (kind == ActionKind::forward) return stage.forwards;
    return kind == ActionKind::weight_grad ? stage.weight_grads : stage.input_grads;
  }

  void take(const Candidate& next) {
    StageState& stage = stages_[static_cast<std::size_t>(next.action.stage)];
    const auto rank = static_cast<std::size_t>(stage.rank);
    const double end = next.begin + timing_.of(next.action.stage).of(next.action.kind);
    free_[rank] = end;
    schedule_.lists[rank].push_back(next.action);
    if (next.action.kind == ActionKind::forward) {
      ++stage.forwards;
      ++in_flight_[rank];
      stage.forward_ends.push_back(end);
    }
    if (gives_input_grad(next.action.kind)) {
      ++stage.input_grads;
      stage.input_grad_ends.push_back(end);
    }
    if (gives_weight_grad(next.action.kind)) {
      ++stage.weight_grads;
      --in_flight_[rank];
    }
  }

  const Timing& timing_;
  GreedyRules rules_;
  int micro_batches_;
  int most_stages_ = 1;  // the largest number of stages on one rank
  Schedule schedule_;
  std::vector<double> free_;
  std::vector<int> in_flight_;
  std::vector<std::vector<int>> own_stages_;  // by rank, the last stage first
  std::vector<Candidate> next_;               // by rank
  std::vector<StageState> stages_;
};

}  // namespace

Schedule greedy_schedule(const Placement& placement, int micro_batches, const Timing& timing,
                         const GreedyRules& rules) {
  return Grower(placement, micro_batches, timing, rules).grow();
}

}  // namespace trireme::pipeline
