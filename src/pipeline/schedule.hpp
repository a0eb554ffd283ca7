#pragma once
#include <compare>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::pipeline {

/// An action of one stage on one micro-batch, as in torch.distributed.pipelining. `backward`
/// computes all gradients. Alternatively `input_grad`, which the previous stage waits for, and a
/// deferred `weight_grad` compute them separately.
enum class ActionKind { forward, backward, input_grad, weight_grad };

struct StageAction {
  ActionKind kind = ActionKind::forward;
  int stage = 0;
  int micro_batch = 0;

  auto operator<=>(const StageAction&) const = default;
};

/// Returns the text of an action, kind, stage and micro-batch: "F0.3", "BW0.3", "B0.3", "W0.3".
std::string text_of(const StageAction& action);

/// Parses the text of an action; nullopt if it is invalid.
std::optional<StageAction> parse_action(std::string_view text);

/// True if the action computes the input gradient, which the previous stage waits for.
constexpr bool gives_input_grad(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::input_grad;
}

/// True if the weight gradients are complete after the action, so that saved activations are free.
constexpr bool gives_weight_grad(ActionKind kind) {
  return kind == ActionKind::backward || kind == ActionKind::weight_grad;
}

/// The assignment of stages to ranks of the pp axis.
struct Placement {
  int ranks = 1;
  std::vector<int> rank_of_stage = {0};

  bool operator==(const Placement&) const = default;

  [[nodiscard]] int stages() const { return static_cast<int>(rank_of_stage.size()); }

  /// Returns the rank's stages in ascending order.
  [[nodiscard]] std::vector<int> stages_of(int rank) const;

  /// Returns the index of a stage among the stages of its rank.
  [[nodiscard]] std::size_t local_stage_index(int stage) const;
};

/// Places stage s on rank s mod `ranks`, `virtual_stages` stages on each rank.
Placement looped_placement(int ranks, int virtual_stages);

/// Places two stages on each rank, down and up again: rank 0 has the first and the last stage.
Placement v_placement(int ranks);

/// The order of all actions of one update, as a list for each rank. Transfers follow from the
/// lists: the result of an action leaves for the next stage's rank when the action ends.
struct Schedule {
  Placement placement;
  int micro_batches = 0;
  std::vector<std::vector<StageAction>> lists = {};  // by rank
};

/// Checks that the lists contain each stage's actions for all micro-batches, once each, on its
/// rank. Returns the first mistake, or "". simulate() checks the order.
std::string mistake_in(const Schedule& schedule);

}  // namespace trireme::pipeline
