#include "parallel/pipeline/stage_plan.hpp"

#include <algorithm>
#include <map>
#include <mutex>
#include <string_view>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/join.hpp"
#include "pipeline/greedy.hpp"
#include "pipeline/named.hpp"
#include "pipeline/schedule_file.hpp"
#include "pipeline/search.hpp"

namespace trireme::parallel {
namespace {

constexpr std::string_view kAuto = "auto";

bool is_named(const ParallelConfig& config) {
  return std::ranges::find(pipeline::kSchedules, config.schedule) != pipeline::kSchedules.end();
}

bool is_file(const ParallelConfig& config) {
  return config.pp > 1 && config.schedule != kAuto && !is_named(config);
}

/// Reads the file once, so that a later change of the file does not change the run.
const pipeline::Schedule& schedule_in(const std::string& file) {
  static std::mutex mutex;
  static std::map<std::string, pipeline::Schedule> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(file);
  if (found != known.end()) return found->second;
  return known.emplace(file, pipeline::parse_schedule(read_file(file), file)).first->second;
}

/// With two stages per rank the placement is V-shaped: the last stage is on the rank of the first.
pipeline::Placement searched_placement(const ParallelConfig& config) {
  const auto ranks = static_cast<int>(config.pp);
  const auto on_each = static_cast<int>(config.virtual_stages);
  return on_each == 2 ? pipeline::v_placement(ranks) : pipeline::looped_placement(ranks, on_each);
}

pipeline::Schedule greedy(const pipeline::Placement& placement, int micro_batches) {
  return pipeline::greedy_schedule(placement, micro_batches, {{pipeline::ActionTimes{}}},
                                   {.split_backward = false});
}

pipeline::Schedule named(const ParallelConfig& config, int micro_batches) {
  if (config.pp == 1) return pipeline::named_schedule("1f1b", {1, 1, micro_batches});
  const int stages =
      pipeline::stages_per_rank(config.schedule, static_cast<int>(config.virtual_stages));
  return pipeline::named_schedule(config.schedule,
                                  {static_cast<int>(config.pp), stages, micro_batches});
}

}  // namespace

bool searches_schedule(const ParallelConfig& config) {
  return config.pp > 1 && config.schedule == kAuto;
}

std::optional<ScheduleMistake> mistake_in_schedule(const ParallelConfig& config) {
  if (config.schedule == kAuto) return std::nullopt;
  if (is_named(config)) {
    const std::string why =
        pipeline::mistake_in_stages(config.schedule, static_cast<int>(config.virtual_stages));
    if (why.empty()) return std::nullopt;
    return ScheduleMistake{"parallel.virtual_stages", cat(config.virtual_stages), why};
  }
  std::string why;
  try {
    const int ranks = schedule_in(config.schedule).placement.ranks;
    if (ranks == config.pp) return std::nullopt;
    why = formatted("must be a schedule of parallel.pp = {} ranks, it has {}", config.pp, ranks);
  } catch (const Error& error) {
    why = formatted("must be {}, auto or a schedule file: {}", joined(pipeline::kSchedules, ", "),
                    error.what());
  }
  return ScheduleMistake{"parallel.schedule", config.schedule, why};
}

std::string weights_out_of_order(const ParallelConfig& config) {
  if (!is_file(config)) return "";
  const pipeline::Schedule& schedule = schedule_in(config.schedule);
  std::vector<int> next(static_cast<std::size_t>(schedule.placement.stages()), 0);
  for (const auto& list : schedule.lists) {
    for (const pipeline::StageAction& action : list) {
      if (!pipeline::gives_weight_grad(action.kind)) continue;
      int& expected = next[static_cast<std::size_t>(action.stage)];
      if (action.micro_batch != expected) return text_of(action);
      ++expected;
    }
  }
  return "";
}

int micro_batches_of_schedule(const ParallelConfig& config) {
  return is_file(config) ? schedule_in(config.schedule).micro_batches : 0;
}

pipeline::Placement stage_placement(const ParallelConfig& config) {
  if (config.pp == 1 || is_named(config)) return named(config, 0).placement;
  return config.schedule == kAuto ? searched_placement(config)
                                  : schedule_in(config.schedule).placement;
}

pipeline::Schedule stage_schedule(const ParallelConfig& config, int micro_batches,
                                  const pipeline::Timing& timing) {
  if (config.pp == 1 || is_named(config)) return named(config, micro_batches);
  const pipeline::Placement placement = stage_placement(config);
  if (config.schedule != kAuto) {
    const pipeline::Schedule& schedule = schedule_in(config.schedule);
    return schedule.micro_batches == micro_batches ? schedule : greedy(placement, micro_batches);
  }
  if (micro_batches == 0) return greedy(placement, 0);
  return pipeline::search_schedule(placement, micro_batches, timing,
                                   static_cast<int>(config.in_flight))
      .schedule;
}

}  // namespace trireme::parallel
