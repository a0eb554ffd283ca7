#include <ATen/Parallel.h>

#include <mutex>
#include <set>

#include "device/kernel_choice.hpp"
#include "ops/attention.hpp"
#include "ops/cpu_rows.hpp"
#include "unit/ops/support.hpp"
#include "unit/ops/thread_count.hpp"

namespace trireme::ops::testing {
namespace {

/// fp32 attention without AVX-512 uses LibTorch, and its matrix products use MKL. On Intel
/// processors, MKL gives the same bits for any number of threads only if this is requested before
/// the first product, which `parallel.reproducible` does.
[[maybe_unused]] const int kAsReproducible = [] {
  device::use_thread_independent_products();
  return 0;
}();

// ThreadSanitizer cannot see how OpenMP's threads wait, because OpenMP is built without it
#ifndef __SANITIZE_THREAD__
TEST(Threads, ShareTheRowsOfTheNativeKernels) {
  const Threads three(3);
  std::mutex mutex;
  std::set<int> seen;
  for_row_chunks(16 * kRowsPerChunk, [&](std::int64_t, std::int64_t) {
    const std::lock_guard lock(mutex);
    seen.insert(at::get_thread_num());
  });
  EXPECT_EQ(seen, (std::set<int>{0, 1, 2}));
}
#endif

TEST(Threads, AttentionHasTheSameBitsOnAnyNumber) {
  at::manual_seed(11);
  for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
    const auto q = random({2, 8, 200, 32}).to(type);
    const auto k = random({2, 2, 200, 32}).to(type);
    const auto v = random({2, 2, 200, 32}).to(type);
    const AttentionSetup setup{.scale = 0.2, .bounds = {{0, 70, 200}, {0, 200}}};
    std::vector<Tensors> results;
    for (const int count : {1, 3, 7}) {  // with 7 threads, each query head has its own work
      const Threads threads(count);
      const AttentionOutput forward = attention_forward(q, k, v, setup);
      const AttentionGrads grads = attention_backward(forward.out, q, k, v, forward, setup);
      results.push_back({forward.out, forward.lse, grads.q, grads.k, grads.v});
    }
    for (const Tensors& other : results) {
      for (std::size_t i = 0; i < other.size(); ++i)
        EXPECT_TRUE(other[i].equal(results.front()[i])) << i << ' ' << at::toString(type);
    }
  }
}

}  // namespace
}  // namespace trireme::ops::testing
