#pragma once
#include <span>

#include "unit/comm/conformance.hpp"

/// The parts of the suite, one file each; conformance.cpp puts them together.
namespace trireme::testing {

std::span<const ConformanceCase> collective_cases();
std::span<const ConformanceCase> group_cases();
std::span<const ConformanceCase> sum_cases();
std::span<const ConformanceCase> record_cases();

inline float sum_over(Communicator& group, float value) {
  float total = -1;
  group.all_reduce(&value, &total, 1, DType::f32, ReduceOp::sum)->wait();
  return total;
}

}  // namespace trireme::testing
