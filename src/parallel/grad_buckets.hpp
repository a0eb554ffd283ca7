#pragma once
#include <vector>

#include "core/timer.hpp"
#include "parallel/param_registry.hpp"

namespace trireme {

/// When the communication of one update happened, in seconds since its begin().
struct OverlapTimes {
  double first_launch_s = 0;  // the first bucket left
  double last_ready_s = 0;    // the last gradient was complete
  double comm_s = 0;          // total time during which at least one bucket was in flight
  double exposed_s = 0;       // of it, time in which backward had ended and the rank only waited
};

/// Sums gradients over the data axis while backward is still running.
///
/// A bucket is a contiguous range of the registry's flat gradients, filled from the last parameter
/// to the first (backward reaches the last layers first); the assignment depends on the registry
/// and `bucket_bytes` only, never on timing. Buckets leave in order, each when all its parameters
/// are ready, so all ranks make the same calls. begin() before an update's backward passes; ready()
/// is the registry's event; finish() waits for all. Throws Error(comm) if a collective fails;
/// gradients are then undefined. Source: Li et al., "PyTorch Distributed: experiences on
/// accelerating data parallel training", VLDB 2020, section 3.2.
class GradBuckets {
 public:
  GradBuckets(ParamRegistry& registry, Communicator& group, double bucket_mib);

  void begin();
  void ready(ParamId id);
  /// Lets communication progress; cheap, called now and then during backward.
  void poll();
  void finish();

  [[nodiscard]] const OverlapTimes& times() const { return times_; }

 private:
  struct Bucket {
    ParamId first = 0;  // ids [first, end)
    ParamId end = 0;
    std::size_t missing = 0;
    std::string tag;
    WorkPtr work;
  };

  void launch(Bucket& bucket);
  void retire_completed();

  ParamRegistry& registry_;
  Communicator& group_;
  std::vector<Bucket> buckets_;         // in launch order
  std::vector<std::size_t> bucket_of_;  // by parameter
  std::size_t next_launch_ = 0;
  std::size_t next_retire_ = 0;
  double busy_since_s_ = 0;
  Timer timer_;
  OverlapTimes times_;
};

}  // namespace trireme
