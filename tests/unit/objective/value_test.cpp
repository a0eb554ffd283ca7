#include "objective/value.hpp"

#include "unit/objective/support.hpp"

namespace trireme::testing {
namespace {

/// The columns of Microbatch::policy that a critic reads.
enum Column { kWeight = 5, kOldValue = 6, kReturn = 7 };

constexpr objective::ValueConfig kConfig{.clip = 0.3, .weight = 0.7};

/// One rank with a critic. Its output matrix has no part in the loss.
struct CriticRank {
  explicit CriticRank(comm::Communicator& world, const Ranks& ranks = {})
      : mesh(world, RankOfLayout::config(ranks)) {
    registry.declare({.name = "lm_head.weight", .shape = {kClasses, kWidth}});
    loss = std::make_unique<objective::ValueObjective>(
        registry, objective::ValueObjective::Setup{.hidden_size = kWidth,
                                                   .config = kConfig,
                                                   .tensor = {mesh.group(parallel::Axis::tp),
                                                              /*sequence_parallel=*/false}});
    registry.allocate(mesh, {at::kDouble, at::kDouble}, at::kCPU);
    registry.initialize(1);
    registry.refresh_weights();
    registry.begin_update(1);
    registry.on_ready([this](parallel::ParamId id) { ready.push_back(id); });
  }

  parallel::Mesh mesh;
  parallel::ParamRegistry registry;
  std::unique_ptr<objective::ValueObjective> loss;
  std::vector<parallel::ParamId> ready;
};

at::Tensor plain_value_loss(const parallel::Microbatch& batch, const at::Tensor& x,
                            const at::Tensor& w) {
  const at::Tensor index = objective::target_index(batch);
  const at::Tensor values = at::matmul(x, w.t()).flatten().index_select(0, index);
  const auto column = [&](Column one) { return batch.policy.select(1, one); };
  const at::Tensor limited = at::minimum(at::maximum(values, column(kOldValue) - kConfig.clip),
                                         column(kOldValue) + kConfig.clip);
  const at::Tensor losses =
      at::maximum((values - column(kReturn)).square(), (limited - column(kReturn)).square());
  return (column(kWeight) * losses * 0.5).sum();
}

TEST(Value, TheLossAndItsGradientsEqualAutograd) {
  comm::run_ranks(1, [](comm::Communicator& world) {
    constexpr double kScale = 0.125;
    CriticRank rank(world);
    parallel::Microbatch batch = batch_of_rows(2);
    const at::Tensor hidden = normal({2, kLength, kWidth}, 1);
    batch.policy = normal({objective::target_index(batch).numel(), 8}, 2);
    const at::Tensor head = rank.registry.main(1).clone();
    const LossAndGrads expected = by_autograd(
        hidden, head, [&](const auto& x, const auto& w) { return plain_value_loss(batch, x, w); });

    objective::ObjectiveGrads saved;
    const at::Tensor loss = rank.loss->forward(batch, hidden, kScale, saved);
    const at::Tensor grad_hidden = saved.grad_hidden;
    rank.loss->backward(saved);

    EXPECT_TRUE(at::allclose(loss, expected.loss, 1e-12, 1e-12));
    const double factor = kScale * kConfig.weight;
    EXPECT_TRUE(at::allclose(grad_hidden, expected.hidden * factor, 1e-12, 1e-12));
    EXPECT_TRUE(at::allclose(rank.registry.master_grad(1), expected.weight * factor, 1e-12, 1e-12));
    EXPECT_EQ(rank.registry.master_grad(0).abs().max().item<double>(), 0);
    EXPECT_EQ(rank.ready.size(), 2U) << "the optimizer would wait for the output matrix";
  });
}

TEST(Value, OneRankOfTpGivesTheGradientOfTheHiddenStates) {
  const parallel::Microbatch batch = [] {
    parallel::Microbatch one = batch_of_rows(2);
    one.policy = normal({objective::target_index(one).numel(), 8}, 2);
    return one;
  }();
  const at::Tensor hidden = normal({2, kLength, kWidth}, 1);
  const auto gradients = [&](int ranks) {
    std::vector<LossAndGrads> found(static_cast<std::size_t>(ranks));
    comm::run_ranks(ranks, [&](comm::Communicator& world) {
      CriticRank rank(world, {ranks, 1});
      objective::ObjectiveGrads saved;
      const at::Tensor loss = rank.loss->forward(batch, hidden, 1, saved);
      found[static_cast<std::size_t>(world.rank())] = {loss, saved.grad_hidden, saved.grad_head};
    });
    return found;
  };

  const std::vector<LossAndGrads> one = gradients(1);
  const std::vector<LossAndGrads> two = gradients(2);

  EXPECT_TRUE(at::equal(two[0].hidden + two[1].hidden, one[0].hidden)) << "the model adds them up";
  for (const LossAndGrads& rank : two) {
    EXPECT_TRUE(at::equal(rank.loss, one[0].loss));
    EXPECT_TRUE(at::equal(rank.weight, one[0].weight)) << "each rank has the whole head";
  }
}

TEST(Value, TheValueOfATokenIsReadBeforeTheToken) {
  comm::run_ranks(1, [](comm::Communicator& world) {
    CriticRank rank(world);
    parallel::Microbatch batch = batch_of_rows(1);
    batch.targets.fill_(objective::kIgnoredTarget);
    batch.targets[0][4] = 2;  // the target of token 4 is token 5
    const at::Tensor hidden = normal({1, kLength, kWidth}, 1);

    const at::Tensor values = rank.loss->values(batch, hidden);

    ASSERT_EQ(values.numel(), 1);
    const at::Tensor expected = hidden[0][4].dot(rank.registry.main(1)[0]);
    EXPECT_NEAR(values.item<double>(), expected.item<double>(), 1e-12);
  });
}

}  // namespace
}  // namespace trireme::testing
