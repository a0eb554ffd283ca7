#include "objective/cross_entropy.hpp"

#include "unit/objective/support.hpp"

namespace trireme::testing {
namespace {

constexpr double kLossScale = 0.25;

at::Tensor plain_cross_entropy(const parallel::Microbatch& batch, const at::Tensor& x,
                               const at::Tensor& w) {
  const at::Tensor losses =
      at::nll_loss_nd(at::log_softmax(at::matmul(x, w.t()), -1).flatten(0, 1),
                      batch.targets.flatten(), {}, at::Reduction::None, objective::kIgnoredTarget);
  return (batch.target_weights.defined() ? losses * batch.target_weights.flatten() : losses).sum();
}

MakeObjective with(objective::LossRows rows) {
  return [rows](RankOfLayout& rank) {
    return std::make_unique<objective::CrossEntropy>(rank.registry, 0, ops::Path::plain,
                                                     rank.tensor, rows);
  };
}

TEST(CrossEntropy, WeightsOfTargetsAreFactorsOfTheirLosses) {
  parallel::Microbatch batch = batch_of_rows(2);
  const at::Tensor hidden = normal({2, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  for (const bool weighted : {false, true}) {
    // Weights that fp32 represents exactly. A weight is 10 at a tag, like in MiniMind's reasoning
    // trainer.
    if (weighted) {
      batch.target_weights = at::ones({2, kLength}, at::kFloat);
      batch.target_weights.flatten().slice(0, 0, 2 * kLength, 5).fill_(10);
      batch.target_weights[1][2] = 0;
    }
    const LossAndGrads expected = by_autograd(
        hidden, weight,
        [&](const at::Tensor& x, const at::Tensor& w) { return plain_cross_entropy(batch, x, w); });
    for (const Ranks& ranks : kLayouts) {
      for (const objective::LossRows rows :
           {objective::LossRows::all, objective::LossRows::targets}) {
        const LossAndGrads actual = by_ranks(ranks, batch, hidden, weight, kLossScale, with(rows));
        expect_same(actual, expected, kLossScale, 1e-12,
                    name(ranks) + (weighted ? " weighted" : ""));
      }
    }
  }
}

TEST(CrossEntropy, AScaleOnTheDeviceReplacesTheArgument) {
  parallel::Microbatch batch = batch_of_rows(2);
  const at::Tensor hidden = normal({2, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  for (const Ranks& ranks : {Ranks{1, 1}, Ranks{2, 1}}) {
    for (const device::ParamDTypes dtypes : {device::ParamDTypes{at::kDouble, at::kDouble},
                                             {at::kFloat, at::kFloat},
                                             {at::kBFloat16, at::kFloat}}) {
      for (const ops::Path path : {ops::Path::plain, ops::Path::fast}) {
        const auto grads_of = [&](double argument, const at::Tensor& on_device) {
          batch.grad_scale = on_device;
          return by_ranks(
              ranks, batch, hidden, weight, argument,
              [path](RankOfLayout& rank) {
                return std::make_unique<objective::CrossEntropy>(rank.registry, 0, path,
                                                                 rank.tensor);
              },
              dtypes);
        };
        const LossAndGrads expected = grads_of(0.3, {});

        const LossAndGrads actual = grads_of(7, at::scalar_tensor(0.3, at::kDouble));

        EXPECT_TRUE(actual.loss.equal(expected.loss));
        EXPECT_TRUE(actual.hidden.equal(expected.hidden)) << name(ranks);
        EXPECT_TRUE(actual.weight.equal(expected.weight)) << name(ranks);
      }
    }
  }
}

TEST(CrossEntropy, WeightsCountInValidationToo) {
  parallel::Microbatch batch = batch_of_rows(1);
  batch.target_weights = at::full({1, kLength}, 2.5, at::kFloat);
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  const double expected = plain_cross_entropy(batch, hidden, weight).item<double>();
  comm::run_ranks(2, [&](comm::Communicator& world) {
    RankOfLayout rank(world, {2, 1}, weight);
    for (const objective::LossRows rows : {objective::LossRows::all, objective::LossRows::targets})
      EXPECT_NEAR(with(rows)(rank)->evaluate(batch, hidden).item<double>(), expected, 1e-11);
  });
}

TEST(CrossEntropy, CountsTheTextOfTargetsForBitsPerByte) {
  parallel::Microbatch batch = batch_of_rows(2);
  const at::Tensor hidden = normal({2, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  const at::Tensor targets = batch.targets.flatten();
  const at::Tensor losses =
      at::nll_loss_nd(at::log_softmax(at::matmul(hidden, weight.t()), -1).flatten(0, 1), targets,
                      {}, at::Reduction::None, objective::kIgnoredTarget);
  for (const std::int64_t silent : {0, 3, 13}) {  // the number of tokens without text
    const at::Tensor bytes = at::arange(kClasses).sub(silent - 1).clamp_min(0);
    const at::Tensor of_targets = bytes.index_select(0, targets.clamp_min(0)).mul(targets.ge(0));
    const double text_loss = losses.mul(of_targets.gt(0)).sum().item<double>();
    for (const bool weighted : {false, true}) {
      batch.target_weights = weighted ? at::full({2, kLength}, 2.5, at::kFloat) : at::Tensor();
      for (const Ranks& ranks : kLayouts) {
        at::Tensor sums = at::zeros({ranks.cp, 3}, at::kDouble);
        comm::run_ranks(ranks.tp * ranks.cp, [&](comm::Communicator& world) {
          RankOfLayout rank(world, ranks, weight);
          const auto objective = with(objective::LossRows::targets)(rank);
          ASSERT_TRUE(objective->count_text(bytes));
          const parallel::Microbatch mine = parallel::shard_sequence(batch, rank.mesh);
          const at::Tensor own = objective->evaluate(mine, rank.own(hidden, mine));
          if (rank.mesh.rank(parallel::Axis::tp) == 0)
            sums[rank.mesh.rank(parallel::Axis::cp)].copy_(own);
        });
        const at::Tensor all = sums.sum(0);
        const std::string where = name(ranks) + (weighted ? " weighted" : "");
        EXPECT_NEAR(all[0].item<double>(),
                    plain_cross_entropy(batch, hidden, weight).item<double>(), 1e-11)
            << where;
        EXPECT_NEAR(all[1].item<double>(), text_loss, 1e-11) << where;
        EXPECT_EQ(all[2].item<double>(), of_targets.sum().item<double>()) << where;
      }
    }
  }
}

TEST(CrossEntropy, IsZeroWithoutTargets) {
  parallel::Microbatch batch = batch_of_rows(1);
  batch.targets.fill_(objective::kIgnoredTarget);
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  for (const Ranks& ranks : kLayouts) {
    for (const objective::LossRows rows :
         {objective::LossRows::all, objective::LossRows::targets}) {
      const LossAndGrads actual = by_ranks(ranks, batch, hidden, weight, kLossScale, with(rows));
      EXPECT_EQ(actual.loss.item<double>(), 0);
      EXPECT_EQ(actual.hidden.count_nonzero().item<std::int64_t>(), 0);
      EXPECT_EQ(actual.weight.count_nonzero().item<std::int64_t>(), 0);
    }
  }
}

}  // namespace
}  // namespace trireme::testing
