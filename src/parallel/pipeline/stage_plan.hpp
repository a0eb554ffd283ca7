#pragma once
#include <optional>
#include <string>

#include "parallel/config.hpp"
#include "pipeline/schedule.hpp"
#include "pipeline/simulate.hpp"

/// The schedule and stage placement of parallel.schedule: one of pipeline::kSchedules, "auto"
/// (searched), or a file from `trireme plan schedule`.
namespace trireme::parallel {

/// Returns true if the schedule is searched, again after actions have been timed.
bool searches_schedule(const ParallelConfig& config);

/// A key, its value and why the value is invalid ("must be ...").
struct ScheduleMistake {
  const char* key;
  std::string value;
  std::string why;
};

/// Returns why the schedule (or its file) is invalid for parallel.pp ranks; nullopt if valid.
std::optional<ScheduleMistake> mistake_in_schedule(const ParallelConfig& config);

/// Returns the first weight gradient, as text, that comes after one of a later micro-batch of its
/// stage; "" if all are in order. Only a file can have such an order.
std::string weights_out_of_order(const ParallelConfig& config);

/// Returns the number of micro-batches that a file requires; 0 means any.
int micro_batches_of_schedule(const ParallelConfig& config);

/// Returns the assignment of stages to ranks.
pipeline::Placement stage_placement(const ParallelConfig& config);

/// Returns the actions of an update of `micro_batches`. Without a pipeline these are forward and
/// backward of each micro-batch in turn. If a file has another number of micro-batches (in a
/// validation), only its placement is used, with greedy order. `timing` is used by the search.
pipeline::Schedule stage_schedule(const ParallelConfig& config, int micro_batches,
                                  const pipeline::Timing& timing = {{pipeline::ActionTimes{}}});

}  // namespace trireme::parallel
