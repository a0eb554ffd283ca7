#pragma once
#include <gtest/gtest.h>

#include "comm/session.hpp"

namespace trireme::testing {

/// The launch information of this process, valid from run_launched_tests on. It is global because
/// gtest constructs the fixtures.
inline const comm::LaunchInfo* g_launch = nullptr;

/// Runs a test program that mpirun starts.
inline int run_launched_tests(int argc, char** argv) {
  const comm::Session session(&argc, &argv);
  g_launch = &session.launch();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace trireme::testing
