#include "comm/factory.hpp"
#include "mpi/launch_main.hpp"
#include "unit/parallel/context_support.hpp"

namespace trireme::testing {
namespace {

TEST(ContextAttentionOverMpi, EqualsOneProcessInEveryForm) {
  const auto world = comm::make_world("mpi", *g_launch);
  for (const ContextCase& c : context_cases()) {
    for (const parallel::ContextAlgorithm form : kAllForms) {
      expect_as_one_process(*world, c, form, parallel::ContextBalance::zigzag, at::kDouble,
                            ops::Path::fast, 1e-12);
    }
  }
}

// Messages over MPI's eager limit progress only inside calls of the MPI library.
TEST(ContextAttentionOverMpi, WithLongMessages) {
  const auto world = comm::make_world("mpi", *g_launch);
  const ContextCase large{"large", 2, 4, 4, 1024, 64, true, {{0, 700, 1024}, {0, 1024}}};
  for (const parallel::ContextAlgorithm form : kAllForms) {
    expect_as_one_process(*world, large, form, parallel::ContextBalance::work, at::kFloat,
                          ops::Path::fast, 1e-5);
  }
}

}  // namespace
}  // namespace trireme::testing

int main(int argc, char** argv) {
  return trireme::testing::run_launched_tests(argc, argv);
}
