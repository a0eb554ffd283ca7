#pragma once
#include <ATen/core/Tensor.h>

#include "parallel/mesh.hpp"
#include "parallel/units/in_flight.hpp"

namespace trireme {

/// Sums over all replicas in three stages: reduce-scatter on each node, all-reduce of each rank's
/// part across nodes, all-gather on each node. With m nodes of n ranks, a rank sends 2 (m - 1) / (m
/// n) of a tensor across nodes, 1 / n of a plain all-reduce.
///
/// The next stage of a tensor starts when a later tensor is added, or in finish(), after a wait for
/// the previous stages. All ranks make the same calls in the same order, whatever the timing.
class HierarchicalSum {
 public:
  /// Both arguments must outlive this object.
  HierarchicalSum(const NodeLevels& levels, InFlight& in_flight)
      : node_(*levels.node), across_(*levels.across), in_flight_(in_flight) {}

  /// Discards the rest of an abandoned update.
  void begin() {
    scattered_.reset();
    summed_.reset();
  }

  /// Sums `values` in place; the number of ranks on a node must divide their count.
  void add(const at::Tensor& values);

  /// Starts all remaining stages.
  void finish();

 private:
  void advance();

  Communicator& node_;
  Communicator& across_;
  InFlight& in_flight_;
  at::Tensor scattered_;  // tensor in the first stage
  at::Tensor summed_;     // tensor in the second stage
};

}  // namespace trireme
