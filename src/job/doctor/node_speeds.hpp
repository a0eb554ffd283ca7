#pragma once
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/session.hpp"
#include "job/doctor/findings.hpp"

namespace trireme::job {

/// The all-reduce speed between one node and its neighbours.
struct NodeSpeed {
  std::string host;
  double allreduce_gb_s = 0;  // GB/s that each of the two ranks sends and receives; 0: no neighbour
  int wrong_sums = 0;  // number of neighbours (a node has one or two) with which a sum was wrong
  int right_sums = 0;
};

/// The speed of each node and the resulting findings.
struct SpeedReport {
  std::vector<NodeSpeed> nodes;
  std::vector<Finding> findings;
};

/// Measures an all-reduce of 16 MiB between each node and the previous and the next node, with one
/// rank per node. The higher of the two speeds counts, so that a slow neighbour does not make a
/// node slow. On a single node, all ranks take part. Returns the report on rank 0. A wrong sum and
/// a node far below the median are findings. Collective.
SpeedReport measure_nodes(comm::Communicator& world, const comm::LaunchInfo& launch);

/// Returns a finding for each node with wrong sums. If some nodes have only wrong sums, reports
/// only these nodes, because the other nodes with a wrong sum probably got it from such a
/// neighbour.
std::vector<Finding> wrong_nodes(const std::vector<NodeSpeed>& nodes);

/// Returns an error for each node below half of the median speed; empty for fewer than three nodes.
std::vector<Finding> slow_nodes(const std::vector<NodeSpeed>& nodes);

}  // namespace trireme::job
