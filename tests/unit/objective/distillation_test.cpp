#include "objective/distillation.hpp"

#include <cmath>

#include "core/error.hpp"
#include "support/combined_measures.hpp"
#include "unit/objective/support.hpp"

namespace trireme::testing {
namespace {

constexpr double kMixScale = 0.125;
constexpr std::int64_t kTeacherWidth = 9;

/// A teacher of another width. Its head is sharded over the ranks by its own number of classes.
class FixedTeacher final : public objective::Teacher {
 public:
  FixedTeacher(RankOfLayout& rank, at::Tensor hidden, const at::Tensor& weight)
      : rank_(rank),
        cut_(rank.mesh.world(),
             {rank.mesh.size(parallel::Axis::tp), rank.mesh.size(parallel::Axis::cp)},
             weight.to(at::kDouble)),
        hidden_(std::move(hidden)),
        weight_(weight) {}

  objective::TeacherStates states(const parallel::Microbatch& batch) override {
    return {
        rank_.own(hidden_, batch),
        {weight_.narrow(0, cut_.first, cut_.classes), rank_.tensor, cut_.first, weight_.size(0)}};
  }

 private:
  RankOfLayout& rank_;
  RankOfLayout cut_;
  at::Tensor hidden_;
  at::Tensor weight_;
};

class OwnedDistillation final : public objective::Objective {
 public:
  OwnedDistillation(RankOfLayout& rank, const objective::DistillationConfig& config,
                    const at::Tensor& hidden, const at::Tensor& weight)
      : objective_(rank.registry, {.tensor = rank.tensor, .config = config},
                   std::make_unique<FixedTeacher>(rank, hidden, weight), measures) {}

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     objective::ObjectiveGrads& saved) override {
    return objective_.forward(batch, hidden, grad_scale, saved);
  }

  void backward(objective::ObjectiveGrads& saved) override { objective_.backward(saved); }

  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override {
    return objective_.evaluate(batch, hidden);
  }

  Measures measures;

 private:
  objective::DistillationObjective objective_;
};

struct Problem {
  parallel::Microbatch batch = batch_of_rows(2);
  at::Tensor hidden = normal({2, kLength, kWidth}, 1);
  at::Tensor weight = normal({kClasses, kWidth}, 2);
  at::Tensor teacher_hidden = normal({2, kLength, kTeacherWidth}, 3);
  at::Tensor teacher_weight = normal({kClasses, kTeacherWidth}, 4);
};

MakeObjective with(const objective::DistillationConfig& config, const Problem& p) {
  return [config, p](RankOfLayout& rank) {
    return std::make_unique<OwnedDistillation>(rank, config, p.teacher_hidden, p.teacher_weight);
  };
}

struct Losses {
  at::Tensor ce;
  at::Tensor kl;
};

/// Computes the weighted sums over the targets by definition: the divergence is over the classes
/// that both models have.
Losses plain_losses(double temperature, const Problem& p, const at::Tensor& x,
                    const at::Tensor& w) {
  const at::Tensor logits = at::matmul(x, w.t()).flatten(0, 1);
  const std::int64_t shared = std::min(w.size(0), p.teacher_weight.size(0));
  const at::Tensor teacher = at::matmul(p.teacher_hidden, p.teacher_weight.t())
                                 .flatten(0, 1)
                                 .narrow(1, 0, shared)
                                 .to(at::kDouble);
  const at::Tensor targets = p.batch.targets.flatten();
  at::Tensor factor = targets.ne(objective::kIgnoredTarget).to(at::kDouble);
  if (p.batch.target_weights.defined()) factor = factor * p.batch.target_weights.flatten();
  const at::Tensor log_p = at::log_softmax(logits.narrow(1, 0, shared) / temperature, -1);
  const at::Tensor log_q = at::log_softmax(teacher / temperature, -1);
  const at::Tensor ce =
      -at::log_softmax(logits, -1).gather(1, targets.clamp_min(0).unsqueeze(1)).squeeze(1);
  return {(ce * factor).sum(), ((log_q.exp() * (log_q - log_p)).sum(1) * factor).sum()};
}

at::Tensor plain_distillation(const objective::DistillationConfig& config, const Problem& p,
                              const at::Tensor& x, const at::Tensor& w) {
  const Losses losses = plain_losses(config.temperature, p, x, w);
  return config.alpha * losses.ce +
         (1 - config.alpha) * config.temperature * config.temperature * losses.kl;
}

const std::vector<objective::DistillationConfig> kConfigs{{}, {0, 1}, {1, 2}, {0.25, 3}};

LossAndGrads expected_of(const objective::DistillationConfig& config, const Problem& p) {
  return by_autograd(p.hidden, p.weight, [&](const at::Tensor& x, const at::Tensor& w) {
    return plain_distillation(config, p, x, w);
  });
}

TEST(Distillation, EqualsItsAutogradOnAnyLayout) {
  Problem p;
  for (const bool weighted : {false, true}) {
    if (weighted) p.batch.target_weights = at::rand({2, kLength}, random_of(6), at::kFloat);
    for (const objective::DistillationConfig& config : kConfigs) {
      const LossAndGrads expected = expected_of(config, p);
      for (const Ranks& ranks : kLayouts) {
        const LossAndGrads actual =
            by_ranks(ranks, p.batch, p.hidden, p.weight, kMixScale, with(config, p));
        expect_same(actual, expected, kMixScale, 1e-11, name(ranks));
      }
    }
  }
}

TEST(Distillation, IsChunkedOverRows) {
  Problem p;
  const objective::TargetRows targets(p.batch, p.hidden);
  const at::Tensor teacher_rows = p.teacher_hidden.flatten(0, 1).index_select(0, targets.index);
  const objective::Head head{p.weight, {}, 0, kClasses};
  const objective::Head teacher{p.teacher_weight, {}, 0, kClasses};
  const auto of_chunks = [&](std::int64_t rows) {
    return objective::linear_distillation(targets.rows, head, teacher_rows, teacher,
                                          targets.targets, {.chunk_rows = rows});
  };
  const objective::DistillationOutput whole = of_chunks(1000);
  for (const std::int64_t rows : {1, 5, 31}) {
    const objective::DistillationOutput chunked = of_chunks(rows);
    expect_close(chunked.loss_sum, whole.loss_sum, 1e-13, "loss");
    expect_close(chunked.grad_x, whole.grad_x, 1e-13, "grad of hidden");
    expect_close(chunked.grad_weight, whole.grad_weight, 1e-13, "grad of head");
  }
  objective::Head frozen = head;
  frozen.trained = false;
  const objective::DistillationOutput of_frozen = objective::linear_distillation(
      targets.rows, frozen, teacher_rows, teacher, targets.targets, {.chunk_rows = 1000});
  EXPECT_TRUE(of_frozen.grad_x.equal(whole.grad_x));
  EXPECT_FALSE(of_frozen.grad_weight.defined());
}

TEST(Distillation, GradientsAreTheSlopeOfTheEvaluatedLoss) {
  const Problem p;
  const objective::DistillationConfig config{0.3, 2};
  const LossAndGrads grads = by_ranks({}, p.batch, p.hidden, p.weight, 1, with(config, p));
  expect_differences(grads, p.hidden, p.weight, [&](const at::Tensor& x, const at::Tensor& w) {
    double loss = 0;
    comm::run_ranks(1, [&](comm::Communicator& world) {
      RankOfLayout rank(world, {}, w);
      loss = with(config, p)(rank)->evaluate(p.batch, x).item<double>();
    });
    return loss;
  });
}

TEST(Distillation, StaysNearFp64InLowPrecision) {
  Problem p;
  p.teacher_hidden = p.teacher_hidden.to(at::kBFloat16);
  p.teacher_weight = p.teacher_weight.to(at::kBFloat16);
  for (const auto dtype : {at::kFloat, at::kBFloat16}) {
    Problem low = p;
    low.hidden = p.hidden.to(dtype);
    low.weight = p.weight.to(dtype).to(at::kFloat);
    // bf16 logits of the teacher are rounded in both cases: 2^-9 of up to 12.
    for (const Ranks& ranks : {Ranks{1, 1}, {2, 1}}) {
      const LossAndGrads actual = by_ranks(ranks, low.batch, low.hidden, low.weight, kMixScale,
                                           with({}, low), {dtype, at::kFloat});
      expect_same(actual, expected_of({}, low), kMixScale, 3e-2, name(ranks) + at::toString(dtype));
    }
  }
}

TEST(Distillation, HasNoDivergenceFromItselfAndNoLossWithoutTargets) {
  Problem p;
  p.teacher_hidden = p.hidden;
  p.teacher_weight = p.weight;
  for (const Ranks& ranks : kLayouts) {
    const LossAndGrads same = by_ranks(ranks, p.batch, p.hidden, p.weight, 1, with({0, 1.5}, p));
    EXPECT_EQ(same.loss.item<double>(), 0);
    EXPECT_LE(same.hidden.abs().max().item<double>(), 1e-14);
  }
  Problem none;
  none.batch.targets.fill_(objective::kIgnoredTarget);
  const LossAndGrads nothing =
      by_ranks({2, 2}, none.batch, none.hidden, none.weight, 1, with({}, none));
  EXPECT_EQ(nothing.loss.item<double>(), 0);
  EXPECT_EQ(nothing.hidden.count_nonzero().item<std::int64_t>(), 0);
  EXPECT_EQ(nothing.weight.count_nonzero().item<std::int64_t>(), 0);
}

TEST(Distillation, ComparesTheClassesThatBothModelsHaveOnAnyLayout) {
  // Embeddings of one tokenizer, padded to different sizes. With 8 shared of 13 classes, the last
  // of three ranks has none of them.
  for (const std::int64_t classes : {8, 12, 14, 31}) {
    Problem p;
    p.teacher_weight = normal({classes, kTeacherWidth}, 4);
    const std::int64_t shared = std::min(classes, kClasses);
    p.batch.targets = p.batch.targets.where(p.batch.targets < shared, p.batch.targets - shared);
    p.batch.targets.flatten().slice(0, 1, 2 * kLength, 3).fill_(objective::kIgnoredTarget);
    for (const objective::DistillationConfig& config : {kConfigs[1], kConfigs[3]}) {
      const LossAndGrads expected = expected_of(config, p);
      for (const Ranks& ranks : kLayouts) {
        const LossAndGrads actual =
            by_ranks(ranks, p.batch, p.hidden, p.weight, kMixScale, with(config, p));
        expect_same(actual, expected, kMixScale, 1e-11,
                    name(ranks) + " classes " + std::to_string(classes));
      }
    }
  }
}

TEST(Distillation, PaddingOfALargeLogitDoesNotReachTheDivergence) {
  Problem p;
  p.teacher_weight = normal({kClasses - 3, kTeacherWidth}, 4);
  p.weight.narrow(0, kClasses - 3, 3).mul_(1e4);  // its exponential would dominate the sum
  p.batch.targets.clamp_max_(kClasses - 4);
  const objective::DistillationConfig config{0, 1.5};
  for (const Ranks& ranks : kLayouts) {
    const LossAndGrads actual = by_ranks(ranks, p.batch, p.hidden, p.weight, 1, with(config, p));
    expect_same(actual, expected_of(config, p), 1, 1e-11, name(ranks));
    EXPECT_EQ(actual.weight.narrow(0, kClasses - 3, 3).abs().max().item<double>(), 0);
  }
}

TEST(Distillation, MeasuresAreMeansOverTheTargetsOfAStep) {
  const Problem p;
  const objective::DistillationConfig config{};
  const Losses losses = plain_losses(config.temperature, p, p.hidden, p.weight);
  const double targets = p.batch.targets.ne(objective::kIgnoredTarget).sum().item<double>();
  for (const Ranks& ranks : kLayouts) {
    CombinedMeasures combined;
    std::mutex mutex;
    comm::run_ranks(ranks.tp * ranks.cp, [&](comm::Communicator& world) {
      RankOfLayout rank(world, ranks, p.weight);
      OwnedDistillation objective(rank, config, p.teacher_hidden, p.teacher_weight);
      const parallel::Microbatch mine = parallel::shard_sequence(p.batch, rank.mesh);
      objective::ObjectiveGrads saved;
      (void)objective.forward(mine, rank.own(p.hidden, mine), 1, saved);
      const std::lock_guard lock(mutex);
      combined.add(objective.measures, world.rank());
      if (combined.ranks() < ranks.tp * ranks.cp) return;
      const auto metrics = combined.metrics(objective.measures);
      ASSERT_EQ(metrics.size(), 2U);
      EXPECT_EQ(metrics[0].name, "ce");
      EXPECT_NEAR(metrics[0].value, losses.ce.item<double>() / targets, 1e-12) << name(ranks);
      EXPECT_EQ(metrics[1].name, "kl");
      EXPECT_NEAR(metrics[1].value, losses.kl.item<double>() / targets, 1e-12) << name(ranks);
    });
  }
}

TEST(Distillation, EveryBadValueIsOneProblem) {
  for (const objective::DistillationConfig& config : {objective::DistillationConfig{-0.1, 1},
                                                      {1.1, 1},
                                                      {std::nan(""), 1},
                                                      {0.5, 0},
                                                      {0.5, INFINITY}}) {
    Problems problems;
    check(config, problems);
    EXPECT_EQ(problems.lines().size(), 1U);
  }
  Problems problems;
  check(objective::DistillationConfig{}, problems);
  EXPECT_TRUE(problems.empty());
}

}  // namespace
}  // namespace trireme::testing
