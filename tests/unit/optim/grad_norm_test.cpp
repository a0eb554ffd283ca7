#include "optim/grad_norm.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <mutex>
#include <set>

#include "comm/thread/thread_world.hpp"
#include "core/exact_sum.hpp"
#include "optim/block_squares.hpp"

namespace trireme::optim {
namespace {

at::Tensor values_of(std::int64_t count, at::ScalarType dtype, std::uint64_t seed) {
  const at::Generator random = at::detail::createCPUGenerator(seed);
  return at::randn({count}, random, at::kDouble).to(dtype);
}

/// Declares parameters that share blocks of squares, and others that do not.
void declare_all(parallel::ParamRegistry& registry) {
  registry.begin_unit("a");
  registry.declare({.name = "a", .shape = {37}});
  registry.declare({.name = "q", .shape = {5, 11}});
  registry.declare({.name = "k", .shape = {9, 11}, .fuse_with_previous = true});
  registry.begin_unit("b");
  registry.declare({.name = "b", .shape = {7, 129}});
}

/// Returns the summary on a layout. Every rank has its shards of the summed gradients of values_of.
GradSummary summary_of(comm::Communicator& world, const parallel::ParallelConfig& parallel,
                       at::ScalarType dtype, double loss) {
  const parallel::Mesh mesh(world, parallel);
  parallel::ParamRegistry registry;
  declare_all(registry);
  registry.allocate(mesh, {dtype, dtype}, at::kCPU);
  for (std::size_t unit = 0; unit < registry.layout().units().size(); ++unit) {
    const parallel::IndexRange part = registry.layout().part(unit);
    for (const parallel::ParamSpan& span : registry.layout().spans(unit, part)) {
      const std::int64_t count = registry.layout().param(span.id).count;
      registry.grad_part(unit)
          .narrow(0, span.begin - part.begin, span.count)
          .copy_(values_of(count, dtype, span.id).narrow(0, span.first, span.count));
    }
  }
  return summarize_grads(registry, world, at::scalar_tensor(loss, at::kDouble));
}

TEST(GradNorm, IsThatOfAllGradientsAndHasTheSameBitsOnEveryLayout) {
  for (const auto dtype : {at::kFloat, at::kDouble}) {
    double squares = 0;
    for (const auto& [id, count] : {std::pair{0, 37}, {1, 55}, {2, 99}, {3, 903}}) {
      squares += values_of(count, dtype, static_cast<std::uint64_t>(id))
                     .to(at::kDouble)
                     .square()
                     .sum()
                     .item<double>();
    }
    std::set<double> norms;
    std::mutex mutex;
    for (const int ranks : {1, 2, 3, 4}) {
      for (const std::int64_t zero : {0, 1, 2, 3}) {
        comm::run_ranks(ranks, [&](comm::Communicator& world) {
          parallel::ParallelConfig parallel;
          parallel.zero = zero;
          if (ranks == 4 && zero > 0) parallel.zero_shard = 2;
          const GradSummary summary = summary_of(world, parallel, dtype, 0.5 + world.rank());
          EXPECT_TRUE(summary.finite);
          EXPECT_EQ(summary.loss_sum, 0.5 + world.rank());
          const std::scoped_lock lock(mutex);
          norms.insert(summary.norm);
        });
      }
    }
    ASSERT_EQ(norms.size(), 1U);
    EXPECT_NEAR(*norms.begin(), std::sqrt(squares), 1e-12 * std::sqrt(squares));
  }
}

TEST(GradNorm, OneRanksLossThatIsNotFiniteIsKnownToAll) {
  comm::run_ranks(2, [](comm::Communicator& world) {
    const double loss = world.rank() == 1 ? std::nan("") : 1.0;
    EXPECT_FALSE(summary_of(world, {}, at::kFloat, loss).finite);
  });
}

TEST(GradNorm, NotFiniteGradientsOfOneRankAreKnownToAll) {
  for (const std::int64_t zero : {0, 2}) {
    comm::run_ranks(2, [&](comm::Communicator& world) {
      parallel::ParallelConfig parallel;
      parallel.zero = zero;
      const parallel::Mesh mesh(world, parallel);
      parallel::ParamRegistry registry;
      declare_all(registry);
      registry.allocate(mesh, {at::kFloat, at::kFloat}, at::kCPU);
      // The last rank owns the end of every unit; b is not padded up to there.
      registry.grad_part(1).fill_(std::numeric_limits<float>::infinity());

      const GradSummary summary =
          summarize_grads(registry, world, at::scalar_tensor(1.0, at::kDouble));

      EXPECT_FALSE(summary.finite);
      EXPECT_FALSE(std::isfinite(summary.norm));
    });
  }
}

TEST(BlockSquares, AreTheSameWithOnlyATen) {
  for (const std::int64_t begin : {0, 1, 63, 100}) {
    for (const std::int64_t count : {1, 63, 64, 65, 1000}) {
      const at::Tensor grads = at::arange(1, count + 1, at::kFloat).mul(0.5);  // sums are exact
      const at::Tensor fast = at::zeros({ExactSum::kWords + 1}, at::kLong);
      const at::Tensor plain = at::zeros_like(fast);

      add_block_squares(grads, begin, fast);
      add_block_squares_plain(grads, begin, plain);

      EXPECT_TRUE(fast.equal(plain)) << begin << " " << count;
    }
  }
  const at::Tensor bad = at::full({3}, std::nan(""), at::kFloat);
  const at::Tensor words = at::zeros({ExactSum::kWords + 1}, at::kLong);
  add_block_squares_plain(bad, 0, words);
  EXPECT_EQ(words[ExactSum::kWords].item<std::int64_t>(), 1);
}

TEST(Clip, FactorShrinksOnlyWhatIsTooLong) {
  EXPECT_DOUBLE_EQ(clip_factor(0.5, 1.0), 1.0);
  EXPECT_NEAR(clip_factor(4.0, 1.0), 0.25, 1e-6);
  EXPECT_DOUBLE_EQ(clip_factor(4.0, 0.0), 1.0);
}

}  // namespace
}  // namespace trireme::optim
