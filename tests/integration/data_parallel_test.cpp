/// Forms of data parallelism beside plain sums: what they compute, and what they send.

#include <gtest/gtest.h>

#include "comm/thread/thread_world.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme {
namespace {

TEST(Hierarchical, TrainsAsOneProcessDoes) {
  RunConfig config;
  config.model = model_preset("tiny");
  config.parallel.hierarchical = true;
  config.parallel.bucket_mb = 0.01;
  for (const auto& [tp, cp] : {std::pair{1, 1}, {2, 1}, {1, 2}}) {
    config.parallel.tp = tp;
    config.parallel.cp = cp;
    run_ranks(8, [&](Communicator& world) {
      const LayoutVerdict verdict =
          verify_layout(world, config, 2, at::kCPU, {0, 0, 0, 0, 1, 1, 1, 1});
      if (world.rank() == 0) {
        EXPECT_TRUE(verdict.equal()) << verdict.grad_rel << " " << verdict.grad_worst;
      }
    });
  }
}

}  // namespace
}  // namespace trireme
