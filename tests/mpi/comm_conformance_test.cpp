#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "comm/factory.hpp"
#include "mpi/launch_main.hpp"
#include "unit/comm/conformance.hpp"

namespace trireme::testing {
namespace {

class MpiConformance : public ::testing::TestWithParam<std::tuple<bool, ConformanceCase>> {};

TEST_P(MpiConformance, Holds) {
  const auto [shared, test] = GetParam();
  comm::CommOptions options;
  options.timeout_s = 60;
  options.chunk_bytes = 4096;
  options.shared_memory = shared ? comm::SharedMemory::always : comm::SharedMemory::never;
  const auto world = comm::make_world("mpi", *g_launch, options);
  ASSERT_EQ(world->shares_memory(), shared && world->size() > 1);

  test.body(*world);
}

INSTANTIATE_TEST_SUITE_P(Ranks, MpiConformance,
                         ::testing::Combine(::testing::Bool(),
                                            ::testing::ValuesIn(conformance_cases().begin(),
                                                                conformance_cases().end())),
                         [](const auto& row) {
                           return std::string(std::get<0>(row.param) ? "Shared" : "Messages") +
                                  std::get<1>(row.param).name;
                         });

TEST(Session, KnowsItsPlace) {
  EXPECT_GE(g_launch->rank, 0);
  EXPECT_LT(g_launch->rank, g_launch->size);
  EXPECT_EQ(g_launch->local_rank, g_launch->rank);  // this test has one node
  EXPECT_EQ(g_launch->local_size, g_launch->size);
  EXPECT_EQ(g_launch->num_nodes, 1);
  EXPECT_FALSE(g_launch->hostname.empty());
}

}  // namespace
}  // namespace trireme::testing

int main(int argc, char** argv) {
  return trireme::testing::run_launched_tests(argc, argv);
}
