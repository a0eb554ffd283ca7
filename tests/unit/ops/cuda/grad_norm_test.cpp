#include "ops/cuda/grad_norm.hpp"

#include "core/exact_sum.hpp"
#include "optim/block_squares.hpp"
#include "optim/grad_norm.hpp"
#include "support/carried_sum.hpp"
#include "unit/ops/cuda/compare.hpp"

namespace trireme::ops::testing {
namespace {

using trireme::testing::carried_words;
using trireme::testing::HostLauncher;

at::Tensor no_words() {
  return at::zeros({static_cast<std::int64_t>(ExactSum::kWords) + 1}, at::kLong);
}

/// Returns fp32 values of many magnitudes, among them zeros and subnormal numbers.
at::Tensor some_grads(std::int64_t count) {
  const at::Tensor grads =
      (random({count}) * at::exp2(at::randint(-149, 60, {count}, at::kDouble))).to(at::kFloat);
  return grads.masked_fill(at::rand({count}).lt(0.1), 0);
}

TEST(CudaGradNorm, HasTheSumsOfTheHostForOddSizes) {
  at::manual_seed(1);
  for (const bool backwards : {false, true}) {
    HostLauncher host;
    host.backwards = backwards;
    for (const std::int64_t count : {1, 63, 64, 65, 4096, 4097, 3 * 4096 + 17}) {
      for (const std::int64_t begin : {0, 1, 64 + 63}) {
        const at::Tensor grads = some_grads(count);
        const at::Tensor words = no_words();
        const at::Tensor expected = no_words();
        optim::add_block_squares(grads, begin, expected);
        cuda::add_block_squares(grads, begin, words);
        EXPECT_EQ(carried_words(words), carried_words(expected)) << count << " from " << begin;
        optim::add_block_squares(grads, begin, expected);
        cuda::add_block_squares(grads, begin, words);
        EXPECT_EQ(carried_words(words), carried_words(expected))
            << "the second sum, " << count << " from " << begin;
      }
    }
  }
}

TEST(CudaGradNorm, AddsSeveralTilesPerBlock) {
  at::manual_seed(2);
  const HostLauncher host;
  const at::Tensor grads = some_grads(513 * 4096 + 5);
  const at::Tensor words = no_words();
  const at::Tensor expected = no_words();
  optim::add_block_squares(grads, 3, expected);
  cuda::add_block_squares(grads, 3, words);
  EXPECT_EQ(carried_words(words), carried_words(expected));
  EXPECT_LE(host.launches.front().shape.blocks, 512);
}

TEST(CudaGradNorm, CountsBlocksThatAreNotFinite) {
  const HostLauncher host;
  const at::Tensor grads = at::ones({300});
  grads[5] = std::numeric_limits<double>::infinity();
  grads[6] = std::numeric_limits<double>::quiet_NaN();
  grads[200] = -std::numeric_limits<double>::quiet_NaN();
  const at::Tensor words = no_words();
  cuda::add_block_squares(grads, 0, words);
  EXPECT_EQ(words[static_cast<std::int64_t>(ExactSum::kWords)].item<std::int64_t>(), 2);
  cuda::add_block_squares(at::empty({0}), 0, words);  // no elements: no launch
  EXPECT_TRUE(cuda::clip_factor(words, 1.0, 1.0).isnan().item<bool>());
}

TEST(CudaGradNorm, ClipFactorIsThatOfTheHost) {
  at::manual_seed(3);
  const HostLauncher host;
  const at::Tensor grads = random({1000}).to(at::kFloat);
  const double norm = exact(grads).norm().item<double>();
  const at::Tensor words = no_words();
  cuda::add_block_squares(grads, 0, words);
  for (const double clip_norm : {0.0, 1.0, 1e6}) {
    for (const double loss_scale : {1.0, 1024.0}) {
      const double expected = optim::clip_factor(norm / loss_scale, clip_norm) / loss_scale;
      EXPECT_FLOAT_EQ(cuda::clip_factor(words, clip_norm, loss_scale).item<float>(),
                      static_cast<float>(expected))
          << clip_norm << ' ' << loss_scale;
    }
  }
  EXPECT_EQ(cuda::clip_factor(no_words(), 1.0, 1.0).item<float>(), 1);
}

}  // namespace
}  // namespace trireme::ops::testing
