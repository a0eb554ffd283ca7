#pragma once
#include <span>

#include "comm/scalars.hpp"
#include "unit/comm/conformance.hpp"

/// The parts of the suite, one in each file; conformance.cpp combines them.
namespace trireme::testing {

std::span<const ConformanceCase> collective_cases();
std::span<const ConformanceCase> group_cases();
std::span<const ConformanceCase> sum_cases();
std::span<const ConformanceCase> record_cases();
std::span<const ConformanceCase> traffic_cases();

inline float sum_over(comm::Communicator& group, float value) {
  return comm::all_reduce_value(group, value, comm::ReduceOp::sum, "sum");
}

}  // namespace trireme::testing
