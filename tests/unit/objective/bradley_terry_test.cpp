#include "objective/bradley_terry.hpp"

#include "support/combined_measures.hpp"
#include "unit/objective/pairs.hpp"

namespace trireme::testing {
namespace {

constexpr double kRewardScale = 0.25;

/// Returns the token after the last token with a target, for each sequence.
std::vector<std::int64_t> ends_of(const parallel::Microbatch& batch) {
  std::vector<std::int64_t> ends(static_cast<std::size_t>(2 * batch.num_pairs), -1);
  for (std::int64_t token = 0; token < batch.length(); ++token)
    if (batch.targets[0][token].item<std::int64_t>() != objective::kIgnoredTarget)
      ends[static_cast<std::size_t>(batch.sequence_of[0][token].item<std::int64_t>())] = token + 1;
  return ends;
}

/// Computes the loss by its definition, one pair after another.
at::Tensor plain_reward_loss(const parallel::Microbatch& batch, double center, const at::Tensor& x,
                             const at::Tensor& w) {
  const std::vector<std::int64_t> ends = ends_of(batch);
  at::Tensor total = at::zeros({}, at::kDouble);
  for (std::int64_t pair = 0; pair < batch.num_pairs; ++pair) {
    const auto reward = [&](std::int64_t side) {
      return x[0][ends[static_cast<std::size_t>(2 * pair + side)]].dot(w[0]);
    };
    const at::Tensor chosen = reward(0);
    const at::Tensor rejected = reward(1);
    total = total - at::log(at::sigmoid(chosen - rejected)) + center * (chosen + rejected).square();
  }
  return total;
}

/// One rank with its part of a batch, and a reward head.
struct RewardRank {
  RewardRank(comm::Communicator& world, const Ranks& ranks, const at::Tensor& weight, double center)
      : mesh(world, RankOfLayout::config(ranks)), tensor(mesh.group(parallel::Axis::tp), false) {
    registry.declare({.name = "lm_head.weight",
                      .shape = {kClasses, kWidth},
                      .split = parallel::DimSplit{.dim = 0, .axis = parallel::Axis::tp}});
    loss = std::make_unique<objective::BradleyTerry>(
        registry,
        objective::BradleyTerry::Setup{.hidden_size = kWidth,
                                       .tensor = tensor,
                                       .context = parallel::context_group(mesh),
                                       .config = {.center = center}},
        measures);
    registry.allocate(mesh, {at::kDouble, at::kDouble}, at::kCPU);
    registry.initialize(1);
    registry.main(1).copy_(weight);
    registry.refresh_weights();
    registry.begin_update(1);
    registry.on_ready([this](parallel::ParamId id) { ready.push_back(id); });
  }

  parallel::Mesh mesh;
  parallel::TensorGroup tensor;
  parallel::ParamRegistry registry;
  Measures measures;
  std::unique_ptr<objective::BradleyTerry> loss;
  std::vector<parallel::ParamId> ready;
};

LossAndGrads reward_by_ranks(const Ranks& ranks, const parallel::Microbatch& batch,
                             const at::Tensor& hidden, const at::Tensor& weight, double center) {
  const auto count = static_cast<std::size_t>(ranks.tp * ranks.cp);
  std::vector<LossAndGrads> parts(count);
  comm::run_ranks(static_cast<int>(count), [&](comm::Communicator& world) {
    RewardRank rank(world, ranks, weight, center);
    const parallel::Microbatch mine = parallel::shard_sequence(batch, rank.mesh);
    const auto own = [&](const at::Tensor& whole) {
      if (ranks.cp == 1) return whole;
      return parallel::select_positions(
          whole,
          mine.positions_of_ranks[static_cast<std::size_t>(rank.mesh.rank(parallel::Axis::cp))]);
    };
    objective::ObjectiveGrads saved;
    const at::Tensor loss = rank.loss->forward(mine, own(hidden), kRewardScale, saved);
    const at::Tensor grad = saved.grad_hidden;
    rank.loss->backward(saved);
    EXPECT_EQ(rank.ready.size(), 2U) << "the output matrix is ready, too";
    LossAndGrads part{at::zeros({}, at::kDouble), at::zeros_like(hidden), at::zeros_like(weight)};
    if (rank.mesh.rank(parallel::Axis::tp) == 0) {
      part.loss.copy_(loss);
      part.weight.copy_(rank.registry.master_grad(1));  // every rank of tp computes the whole one
    }
    const at::Tensor numbers = own(at::arange(kLength).view({1, kLength})).flatten();
    part.hidden.view({-1, kWidth}).index_copy_(0, numbers, grad.reshape({-1, kWidth}));
    parts[static_cast<std::size_t>(world.rank())] = part;
  });
  LossAndGrads sum = parts[0];
  for (std::size_t i = 1; i < count; ++i) {
    sum.loss.add_(parts[i].loss);
    sum.hidden.add_(parts[i].hidden);
    sum.weight.add_(parts[i].weight);
  }
  return sum;
}

TEST(BradleyTerry, LossAndGradientsEqualAutogradOnAnyLayout) {
  const parallel::Microbatch batch = pairs();
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1);
  const at::Tensor weight = normal({1, kWidth}, 2);
  for (const double center : {0.0, 0.3}) {
    const LossAndGrads expected =
        by_autograd(hidden, weight, [&](const at::Tensor& x, const at::Tensor& w) {
          return plain_reward_loss(batch, center, x, w);
        });
    for (const Ranks& ranks : kLayouts)
      expect_same(reward_by_ranks(ranks, batch, hidden, weight, center), expected, kRewardScale,
                  1e-11, name(ranks));
  }
}

TEST(BradleyTerry, EvaluationReportsLossAccuracyAndMargin) {
  const parallel::Microbatch batch = pairs();
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1);
  const at::Tensor weight = normal({1, kWidth}, 2);
  const std::vector<std::int64_t> ends = ends_of(batch);
  double accuracy = 0;
  double margin = 0;
  for (std::size_t pair = 0; pair < 3; ++pair) {
    const auto reward = [&](std::size_t side) {
      return hidden[0][ends[2 * pair + side]].dot(weight[0]).item<double>();
    };
    accuracy += reward(0) > reward(1) ? 1 : 0;
    margin += reward(0) - reward(1);
  }
  ASSERT_TRUE(accuracy > 0 && accuracy < 3) << "the batch tests both cases";
  comm::run_ranks(1, [&](comm::Communicator& world) {
    const RewardRank rank(world, {}, weight, 0);
    const at::Tensor values = rank.loss->evaluate(batch, hidden);

    EXPECT_NEAR(values[0].item<double>(),
                plain_reward_loss(batch, 0, hidden, weight).item<double>(), 1e-12);
    EXPECT_EQ(values[1].item<double>(), accuracy);
    EXPECT_NEAR(values[2].item<double>(), margin, 1e-12);
    const at::Tensor rewards = objective::pair_rewards(batch, hidden, weight);
    EXPECT_NEAR((rewards.select(1, 0) - rewards.select(1, 1)).sum().item<double>(), margin, 1e-12);
  });
}

TEST(BradleyTerry, ABatchOfNoPairsIsZeroAndAnAnswerWithoutTargetIsAnError) {
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1);
  const at::Tensor weight = normal({1, kWidth}, 2);
  const LossAndGrads none = reward_by_ranks({2, 1}, pairs({}), hidden, weight, 0);
  EXPECT_EQ(none.loss.item<double>(), 0);
  EXPECT_EQ(none.hidden.count_nonzero().item<std::int64_t>(), 0);

  comm::run_ranks(1, [&](comm::Communicator& world) {
    const RewardRank rank(world, {}, weight, 0);
    EXPECT_THROW(static_cast<void>(rank.loss->evaluate(pairs({5, 1}), hidden)), Error);
  });
}

}  // namespace
}  // namespace trireme::testing
