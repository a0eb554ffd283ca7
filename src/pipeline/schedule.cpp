#include "pipeline/schedule.hpp"

#include <algorithm>
#include <map>

#include "core/error.hpp"

namespace trireme::pipeline {

std::vector<int> Placement::stages_of(int rank) const {
  std::vector<int> stages;
  for (int stage = 0; stage < this->stages(); ++stage)
    if (rank_of_stage[static_cast<std::size_t>(stage)] == rank) stages.push_back(stage);
  return stages;
}

std::size_t Placement::place_on_rank(int stage) const {
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

bool Schedule::splits_backward() const {
  return std::ranges::any_of(lists, [](const std::vector<Pass>& list) {
    return std::ranges::any_of(list,
                               [](const Pass& pass) { return pass.kind == PassKind::weight_grad; });
  });
}

std::string mistake_in(const Schedule& schedule) {
  const Placement& placement = schedule.placement;
  if (std::ssize(schedule.lists) != placement.ranks)
    return formatted("{} lists, expected one for each of {} ranks", schedule.lists.size(),
                     placement.ranks);
  std::map<Pass, int> seen;
  for (int rank = 0; rank < placement.ranks; ++rank) {
    for (const Pass& pass : schedule.lists[static_cast<std::size_t>(rank)]) {
      if (pass.stage >= placement.stages() || pass.micro_batch >= schedule.micro_batches)
        return formatted("{}: there are {} stages and {} micro-batches, counted from 0",
                         text_of(pass), placement.stages(), schedule.micro_batches);
      const int home = placement.rank_of_stage[static_cast<std::size_t>(pass.stage)];
      if (home != rank)
        return formatted("{} is listed for rank {}, its stage is on rank {}", text_of(pass), rank,
                         home);
      if (++seen[pass] > 1) return formatted("{} is listed twice", text_of(pass));
    }
  }
  for (int stage = 0; stage < placement.stages(); ++stage) {
    for (int i = 0; i < schedule.micro_batches; ++i) {
      const auto has = [&](PassKind kind) { return seen.contains({kind, stage, i}); };
      if (!has(PassKind::forward))
        return formatted("{} is missing", text_of({PassKind::forward, stage, i}));
      const bool whole = has(PassKind::backward);
      const bool input = has(PassKind::input_grad);
      const bool weight = has(PassKind::weight_grad);
      if (whole ? input || weight : !input || !weight)
        return formatted("stage {}, micro-batch {} needs either BW, or B and W", stage, i);
    }
  }
  return "";
}

}  // namespace trireme::pipeline
