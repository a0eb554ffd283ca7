#pragma once
#include <vector>

namespace trireme {

/// Returns the CPUs on which this process may run, in ascending order. The list is empty if the
/// system does not tell them (machines with more than CPU_SETSIZE CPUs).
std::vector<int> allowed_cpus();

}  // namespace trireme
