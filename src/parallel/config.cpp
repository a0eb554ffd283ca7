#include "parallel/config.hpp"

#include "core/error.hpp"
#include "core/problems.hpp"

namespace trireme {

void check(const ParallelConfig& config, Problems& problems) {
  const auto only = [&](const char* key, const auto& value, const auto& supported) {
    if (value != supported)
      problems.add(cat("parallel.", key), value, cat("this version supports ", supported));
  };
  only("tp", config.tp, 1);
  only("cp", config.cp, 1);
  only("pp", config.pp, 1);
  only("ep", config.ep, 1);
  only("zero", config.zero, 0);
  only("schedule", config.schedule, "1f1b");
  if (config.sequence_parallel)
    problems.add("parallel.sequence_parallel", true, "this version supports false");
  if (config.hierarchical)
    problems.add("parallel.hierarchical", true, "this version supports false");
  if (config.recompute != "none" && config.recompute != "full")
    problems.add("parallel.recompute", config.recompute, "this version supports none or full");
  if (!(config.bucket_mb >= 0))
    problems.add("parallel.bucket_mb", config.bucket_mb, "must be 0 (one bucket) or more");
}

int data_ranks(const ParallelConfig& config, int world_size) {
  const std::int64_t model_ranks = config.tp * config.cp * config.pp;
  if (model_ranks < 1 || world_size % model_ranks != 0) {
    fail(ErrorKind::usage,
         "parallel.tp * cp * pp = ",
         model_ranks,
         " does not divide the ",
         world_size,
         " ranks started");
  }
  return static_cast<int>(world_size / model_ranks);
}

}  // namespace trireme
