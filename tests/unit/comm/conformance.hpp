#pragma once
#include <span>

#include "comm/communicator.hpp"

/// The contract of every backend. Each backend's own test runs it with ranks of that backend.
namespace trireme::testing {

struct ConformanceCase {
  const char* name;
  void (*body)(comm::Communicator& world);  // called on every rank; checks with EXPECT
};

std::span<const ConformanceCase> conformance_cases();

}  // namespace trireme::testing
