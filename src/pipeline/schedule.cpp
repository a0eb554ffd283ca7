#include "pipeline/schedule.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>

#include "core/error.hpp"

namespace trireme::pipeline {
namespace {

constexpr std::array<std::string_view, 4> kLetters{"F", "BW", "B", "W"};  // indexed by ActionKind

/// Parses all of `text` as an unsigned integer.
std::optional<int> count_of(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || text.starts_with('-'))
    return std::nullopt;
  return value;
}

}  // namespace

std::string text_of(const StageAction& action) {
  return formatted("{}{}.{}", kLetters[static_cast<std::size_t>(action.kind)], action.stage,
                   action.micro_batch);
}

std::optional<StageAction> parse_action(std::string_view text) {
  const auto digit =
      std::find_if(text.begin(), text.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  const auto letters = text.substr(0, static_cast<std::size_t>(digit - text.begin()));
  const auto* const kind = std::find(kLetters.begin(), kLetters.end(), letters);
  const std::string_view numbers = text.substr(letters.size());
  const std::size_t point = numbers.find('.');
  if (kind == kLetters.end() || point == std::string_view::npos) return std::nullopt;
  const auto stage = count_of(numbers.substr(0, point));
  const auto micro_batch = count_of(numbers.substr(point + 1));
  if (!stage || !micro_batch) return std::nullopt;
  return StageAction{static_cast<ActionKind>(kind - kLetters.begin()), *stage, *micro_batch};
}

std::vector<int> Placement::stages_of(int rank) const {
  std::vector<int> stages;
  for (int stage = 0; stage < this->stages(); ++stage)
    if (rank_of_stage[static_cast<std::size_t>(stage)] == rank) stages.push_back(stage);
  return stages;
}

std::size_t Placement::local_stage_index(int stage) const {
  const auto begin = rank_of_stage.begin();
  return static_cast<std::size_t>(std::count(begin, begin + stage, begin[stage]));
}

Placement looped_placement(int ranks, int virtual_stages) {
  Placement placement{ranks, {}};
  for (int stage = 0; stage < ranks * virtual_stages; ++stage)
    placement.rank_of_stage.push_back(stage % ranks);
  return placement;
}

Placement v_placement(int ranks) {
  Placement placement{ranks, {}};
  for (int stage = 0; stage < ranks; ++stage) placement.rank_of_stage.push_back(stage);
  for (int stage = ranks; stage-- > 0;) placement.rank_of_stage.push_back(stage);
  return placement;
}

std::string mistake_in(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  if (std::ssize(schedule.lists) != placement.ranks)
    return formatted("{} lists, expected one for each of {} ranks", schedule.lists.size(),
                     placement.ranks);
  std::map<StageAction, int> seen;
  for (int rank = 0; rank < placement.ranks; ++rank) {
    for (const StageAction& action : schedule.lists[static_cast<std::size_t>(rank)]) {
      if (action.stage >= placement.stages() || action.micro_batch >= schedule.micro_batches)
        return formatted("{}: there are {} stages and {} micro-batches, counted from 0",
                         text_of(action), placement.stages(), schedule.micro_batches);
      const int home = placement.rank_of_stage[static_cast<std::size_t>(action.stage)];
      if (home != rank)
        return formatted("{} is listed for rank {}, its stage is on rank {}", text_of(action), rank,
                         home);
      if (++seen[action] > 1) return formatted("{} is listed twice", text_of(action));
    }
  }
  for (int stage = 0; stage < placement.stages(); ++stage) {
    for (int i = 0; i < schedule.micro_batches; ++i) {
      const auto has = [&](ActionKind kind) { return seen.contains({kind, stage, i}); };
      if (!has(ActionKind::forward))
        return formatted("{} is missing", text_of({ActionKind::forward, stage, i}));
      const bool whole = has(ActionKind::backward);
      const bool input = has(ActionKind::input_grad);
      const bool weight = has(ActionKind::weight_grad);
      if (whole ? input || weight : !input || !weight)
        return formatted("stage {}, micro-batch {} needs either BW, or B and W", stage, i);
    }
  }
  return "";
}

}  // namespace trireme::pipeline
