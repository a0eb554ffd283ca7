#pragma once
#include <string>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/session.hpp"
#include "job/doctor/findings.hpp"

namespace trireme {

/// How fast a node sums with others.
struct NodeSpeed {
  std::string host;
  double allreduce_gb_s = 0;  // GB/s that each of two ranks sends and gets; 0: nobody to sum with
  int wrong_sums = 0;         // with a neighbour, of one or two
  int right_sums = 0;
};

/// Collective: every node sums 16 MiB with the node before it and the node after it, one rank each;
/// the better of the two is its figure, so that a slow neighbour does not count. On one node all
/// ranks sum. On rank 0, by node; a sum that is not right is a finding, and so is a node far below
/// the others.
struct SpeedReport {
  std::vector<NodeSpeed> nodes;
  std::vector<Finding> findings;
};

SpeedReport measure_nodes(Communicator& world, const LaunchInfo& launch);

/// Nodes whose sums were wrong. Neighbours of a bad node have one right sum, with another: they are
/// named only where no node has none.
std::vector<Finding> wrong_nodes(const std::vector<NodeSpeed>& nodes);

/// Of three nodes and more: those below half of the median, each an error.
std::vector<Finding> slow_nodes(const std::vector<NodeSpeed>& nodes);

}  // namespace trireme
