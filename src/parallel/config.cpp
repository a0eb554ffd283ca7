#include "parallel/config.hpp"

#include "core/error.hpp"
#include "core/problems.hpp"

namespace trireme {

void check(const ParallelConfig& config, Problems& problems) {
  problems.supported("parallel.tp", config.tp, {"1"});
  problems.supported("parallel.cp", config.cp, {"1"});
  problems.supported("parallel.pp", config.pp, {"1"});
  problems.supported("parallel.ep", config.ep, {"1"});
  problems.supported("parallel.zero", config.zero, {"0"});
  problems.supported("parallel.schedule", config.schedule, {"1f1b"});
  problems.supported("parallel.sequence_parallel", config.sequence_parallel, {"false"});
  problems.supported("parallel.hierarchical", config.hierarchical, {"false"});
  problems.supported("parallel.recompute", config.recompute, {"none", "full"});
  if (!(config.bucket_mb >= 0))
    problems.add("parallel.bucket_mb", config.bucket_mb, "must be 0 (one bucket) or more");
}

int data_ranks(const ParallelConfig& config, int world_size) {
  const std::int64_t model_ranks = config.tp * config.cp * config.pp;
  if (model_ranks < 1 || world_size % model_ranks != 0) {
    fail(ErrorKind::usage, "parallel.tp * cp * pp = {} does not divide the {} ranks started",
         model_ranks, world_size);
  }
  return static_cast<int>(world_size / model_ranks);
}

}  // namespace trireme
