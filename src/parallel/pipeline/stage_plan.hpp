#pragma once
#include <optional>
#include <string>

#include "parallel/config.hpp"
#include "pipeline/schedule.hpp"
#include "pipeline/simulate.hpp"

/// The schedule and stage placement of parallel.schedule: one of pipeline::kSchedules, "auto"
/// (searched), or a file from `trireme plan schedule`.
namespace trireme::parallel {

/// Returns true if the schedule is searched. The search is repeated after the actions have been
/// timed.
bool searches_schedule(const ParallelConfig& config);

/// A key, its value and why the value is invalid ("must be ...").
struct ScheduleMistake {
  const char* key;
  std::string value;
  std::string why;
};

/// Returns why the schedule (or its file) is invalid for parallel.pp ranks; nullopt if valid.
std::optional<ScheduleMistake> mistake_in_schedule(const ParallelConfig& config);

/// Describes the first weight gradient that is out of order: in its stage, the weight gradient of a
/// later micro-batch comes before it. Returns "" if all are in order. Only a schedule from a file
/// can be out of order.
std::string weights_out_of_order(const ParallelConfig& config);

/// Returns the number of micro-batches that a file requires; 0 means any.
int micro_batches_of_schedule(const ParallelConfig& config);

/// Returns the assignment of stages to ranks.
pipeline::Placement stage_placement(const ParallelConfig& config);

/// Returns the actions of an update with `micro_batches` micro-batches. Without a pipeline, these
/// are forward and backward of each micro-batch in turn. If the schedule of a file has another
/// number of micro-batches (in a validation), only its placement is used, and the actions are
/// ordered greedily. The search uses `timing`.
pipeline::Schedule stage_schedule(const ParallelConfig& config, int micro_batches,
                                  const pipeline::Timing& timing = {{pipeline::ActionTimes{}}});

}  // namespace trireme::parallel
