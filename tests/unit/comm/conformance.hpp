#pragma once
#include <span>

#include "comm/communicator.hpp"

/// What every backend must do, run by each backend's own test with ranks as it makes them.
namespace trireme::testing {

struct ConformanceCase {
  const char* name;
  void (*body)(Communicator& world);  // called on every rank; checks with EXPECT
};

std::span<const ConformanceCase> conformance_cases();

}  // namespace trireme::testing
