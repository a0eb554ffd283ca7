#pragma once
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/session.hpp"
#include "job/doctor/findings.hpp"

namespace trireme::job {

/// The all-reduce speed of one node and its neighbours.
struct NodeSpeed {
  std::string host;
  double allreduce_gb_s = 0;  // GB/s that each of two ranks sends and receives; 0: no neighbour
  int wrong_sums = 0;         // number of neighbours (of one or two) with a wrong sum
  int right_sums = 0;
};

/// The speed of each node and the resulting findings.
struct SpeedReport {
  std::vector<NodeSpeed> nodes;
  std::vector<Finding> findings;
};

/// Sums 16 MiB on each node with the previous and the next node, one rank per node; the better of
/// the two speeds counts, so that a slow neighbour has no effect. On a single node, all ranks sum.
/// Returns the report on rank 0. A wrong sum is a finding, and so is a node far below the median.
/// Collective.
SpeedReport measure_nodes(comm::Communicator& world, const comm::LaunchInfo& launch);

/// Returns a finding for each node with wrong sums. A node that also has a right sum, with its
/// other neighbour, is reported only if no node has wrong sums alone.
std::vector<Finding> wrong_nodes(const std::vector<NodeSpeed>& nodes);

/// Returns an error for each node below half of the median speed; empty for fewer than three nodes.
std::vector<Finding> slow_nodes(const std::vector<NodeSpeed>& nodes);

}  // namespace trireme::job
