#pragma once
#include <gtest/gtest.h>

#include "comm/session.hpp"

namespace trireme::testing {

/// This rank's place, from run_launched_tests on. gtest makes the fixtures: no other way in.
inline const LaunchInfo* g_launch = nullptr;

/// The main of a test that mpirun starts.
inline int run_launched_tests(int argc, char** argv) {
  const Session session(&argc, &argv);
  g_launch = &session.launch();
  ::testing::InitGoogleTest(&argc, argv);
  return RUN_ALL_TESTS();
}

}  // namespace trireme::testing
