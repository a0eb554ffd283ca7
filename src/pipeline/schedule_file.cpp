#include "pipeline/schedule_file.hpp"

#include <algorithm>
#include <map>
#include <sstream>

#include "core/error.hpp"
#include "core/join.hpp"
#include "pipeline/simulate.hpp"

namespace trireme::pipeline {
namespace {

constexpr int kMostCount = 1000000;  // limit on the number of stages and of micro-batches

}  // namespace

std::string text_of(const Schedule& schedule) {
  std::string text;
  for (const std::vector<StageAction>& list : schedule.lists)
    text += joined(list, " ", [](const StageAction& action) { return text_of(action); }) + "\n";
  return text;
}

Schedule parse_schedule(std::string_view text, const std::string& source) {
  Schedule schedule{{0, {}}, 0, {}};
  std::map<int, int> rank_of_stage;
  int number = 0;
  for (const std::string& line : split(text, '\n')) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::vector<StageAction> list;
    for (std::string word; words >> word;) {
      const auto action = parse_action(word);
      if (!action)
        fail(
            ErrorKind::usage,
            "{}:{}: '{}' must be an action: F, BW, B or W, its stage, a point, its micro-batch (F0.3)",
            source, number, word);
      if (action->stage >= kMostCount || action->micro_batch >= kMostCount)
        fail(ErrorKind::usage, "{}:{}: '{}', its stage and micro-batch must be below {}", source,
             number, word, kMostCount);
      rank_of_stage.try_emplace(action->stage, schedule.placement.ranks);
      schedule.micro_batches = std::max(schedule.micro_batches, action->micro_batch + 1);
      list.push_back(*action);
    }
    if (list.empty()) continue;
    schedule.lists.push_back(std::move(list));
    ++schedule.placement.ranks;
  }
  if (rank_of_stage.empty()) fail(ErrorKind::usage, "{}: the file has no action", source);
  const int stages = rank_of_stage.rbegin()->first + 1;
  for (int stage = 0; stage < stages; ++stage) {
    const auto found = rank_of_stage.find(stage);
    if (found == rank_of_stage.end())
      fail(ErrorKind::usage, "{}: stage {} of {} has no action", source, stage, stages);
    schedule.placement.rank_of_stage.push_back(found->second);
  }
  if (const std::string mistake = mistake_in(schedule); !mistake.empty())
    fail(ErrorKind::usage, "{}: {}", source, mistake);
  if (const std::string stuck = simulate(schedule, {{ActionTimes{}}}).stuck; !stuck.empty())
    fail(ErrorKind::usage,
         "{}: {} can never start: its input comes later in the list of a rank that waits for it",
         source, stuck);
  return schedule;
}

}  // namespace trireme::pipeline
