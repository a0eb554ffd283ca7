#include "unit/comm/conformance.hpp"

#include <vector>

#include "unit/comm/conformance_parts.hpp"

namespace trireme::testing {

std::span<const ConformanceCase> conformance_cases() {
  static const std::vector<ConformanceCase> all = [] {
    std::vector<ConformanceCase> cases;
    for (const auto part :
         {collective_cases(), group_cases(), sum_cases(), record_cases(), traffic_cases()})
      cases.insert(cases.end(), part.begin(), part.end());
    return cases;
  }();
  return all;
}

}  // namespace trireme::testing
