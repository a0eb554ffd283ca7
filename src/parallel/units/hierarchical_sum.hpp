#pragma once
#include <ATen/core/Tensor.h>

#include "parallel/mesh.hpp"
#include "parallel/units/in_flight.hpp"

namespace trireme {

/// Sums over all replicas in three stages: reduce-scatter on each node, all-reduce of each rank's
/// part across nodes, all-gather on each node. Across m nodes of n ranks a rank sends
/// 2 (m - 1) / (m n) of a tensor: 1 / n of what a plain all-reduce sends there.
///
/// A tensor's next stage begins when a later tensor is added, or in finish, after a wait for the
/// stages before: all ranks make the same calls in the same order, whatever the timing.
class HierarchicalSum {
 public:
  /// Both outlive this.
  HierarchicalSum(const NodeLevels& levels, InFlight& in_flight)
      : node_(*levels.node), across_(*levels.across), in_flight_(in_flight) {}

  /// Forgets what an update that was given up has left.
  void begin() {
    scattered_.reset();
    summed_.reset();
  }

  /// `values`, whose count the ranks of a node divide, are summed in place.
  void add(const at::Tensor& values);

  /// Begins all that is left; it is then in flight.
  void finish();

 private:
  void advance();

  Communicator& node_;
  Communicator& across_;
  InFlight& in_flight_;
  at::Tensor scattered_;  // in the first stage
  at::Tensor summed_;     // in the second
};

}  // namespace trireme
