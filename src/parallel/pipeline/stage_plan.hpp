#pragma once
#include <optional>
#include <string>

#include "parallel/config.hpp"
#include "pipeline/schedule.hpp"
#include "pipeline/simulate.hpp"

/// What parallel.schedule names: the order of a pipeline's passes and where its stages lie. It is one of
/// pipeline::kSchedules, "auto" (searched) or a file as `trireme plan schedule` prints it.
namespace trireme {

/// Whether it is searched, anew when passes have been timed.
bool searches_schedule(const ParallelConfig& config);

/// A key, its value and why that cannot be ("must be ...").
struct ScheduleMistake {
  const char* key;
  std::string value;
  std::string why;
};

/// Why there is no such schedule of parallel.pp ranks; none if there is. Of a file what is in it, too.
std::optional<ScheduleMistake> mistake_in_schedule(const ParallelConfig& config);

/// The first gradient of weights, as text, that comes after one of a later micro-batch of its stage; ""
/// where all come in order. Only a file's may not.
std::string weights_out_of_order(const ParallelConfig& config);

/// Micro-batches that an update must have; 0: any. A file is of one number.
int micro_batches_of_schedule(const ParallelConfig& config);

/// Which rank holds which stage.
pipeline::Placement stage_placement(const ParallelConfig& config);

/// The passes of an update of `micro_batches`; without pipeline each micro-batch's two, one after
/// another. A file of another number gives its placement alone, and passes in the order in which they
/// can begin (a validation). `timing`: of a searched one.
pipeline::Schedule stage_schedule(const ParallelConfig& config, int micro_batches,
                                  const pipeline::Timing& timing = {{pipeline::PassTimes{}}});

}  // namespace trireme
