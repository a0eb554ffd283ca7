#include "unit/comm/conformance.hpp"

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"

namespace trireme::testing {
namespace {

/// Ranks are threads; 0 stands for the self backend.
class Conformance : public ::testing::TestWithParam<std::tuple<int, ConformanceCase>> {};

TEST_P(Conformance, Holds) {
  const auto [ranks, test] = GetParam();
  comm::CommOptions options;
  options.timeout_s = 60;
  options.chunk_bytes = 4096;  // many chunks in small buffers

  if (ranks == 0) {
    comm::SelfCommunicator self("world", options);
    test.body(self);
  } else {
    const auto body = test.body;
    comm::run_ranks(
        ranks, [body](comm::Communicator& world) { body(world); }, options);
  }
}

INSTANTIATE_TEST_SUITE_P(SelfAndThread, Conformance,
                         ::testing::Combine(::testing::Values(0, 1, 2, 3, 4, 5),
                                            ::testing::ValuesIn(conformance_cases().begin(),
                                                                conformance_cases().end())),
                         [](const auto& row) {
                           const int ranks = std::get<0>(row.param);
                           const std::string where =
                               ranks == 0 ? "Self" : "Threads" + std::to_string(ranks);
                           return where + std::get<1>(row.param).name;
                         });

}  // namespace
}  // namespace trireme::testing
