// The communicator of the kill matrix fulfils the contract of all backends; its ranks are forks.
#include "faults/socket_world.hpp"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <vector>

#include "support/child.hpp"
#include "unit/comm/conformance.hpp"

namespace trireme::testing {
namespace {

class SocketConformance : public ::testing::TestWithParam<std::tuple<int, ConformanceCase>> {};

TEST_P(SocketConformance, Holds) {
  const auto [ranks, test] = GetParam();
  const auto body = test.body;
  comm::CommOptions options;
  options.timeout_s = 60;
  options.chunk_bytes = 4096;  // many chunks in small buffers
  SocketMesh mesh(ranks);

  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(test::start_child([&, rank = rank] {
      body(*make_socket_world(mesh.take(rank), rank, options));
      if (HasFailure()) ::_exit(1);
    }));
  }
  { const SocketMesh closed = std::move(mesh); }  // only the ranks notice the exit of a peer

  for (const pid_t child : children) EXPECT_EQ(test::shell_code(test::status_of(child)), 0);
}

INSTANTIATE_TEST_SUITE_P(Forks, SocketConformance,
                         ::testing::Combine(::testing::Values(1, 2, 3, 5),
                                            ::testing::ValuesIn(conformance_cases().begin(),
                                                                conformance_cases().end())),
                         [](const auto& row) {
                           return "Ranks" + std::to_string(std::get<0>(row.param)) +
                                  std::get<1>(row.param).name;
                         });

}  // namespace
}  // namespace trireme::testing
