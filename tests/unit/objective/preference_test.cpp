#include <atomic>
#include <map>

#include "support/combined_measures.hpp"
#include "unit/objective/pairs.hpp"

namespace trireme::testing {
namespace {

constexpr double kPairScale = 0.125;
constexpr double kLn2 = 0.69314718055994530942;

/// An objective with everything that it needs. The reference returns given scores of another model.
class OwnedPreference final : public objective::Objective {
 public:
  OwnedPreference(RankOfLayout& rank, const objective::PreferenceConfig& config,
                  const at::Tensor& reference, ops::Path path = ops::Path::plain)
      : objective_(rank.registry,
                   {.path = path,
                    .tensor = rank.tensor,
                    .context = parallel::context_group(rank.mesh),
                    .config = config,
                    .seq_len = kSeqLen},
                   std::make_unique<FixedReference>(reference), measures) {}

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     objective::ObjectiveGrads& saved) override {
    return objective_.forward(batch, hidden, grad_scale, saved);
  }

  void backward(objective::ObjectiveGrads& saved) override { objective_.backward(saved); }

  [[nodiscard]] std::span<const std::string_view> evaluated() const override {
    return objective_.evaluated();
  }

  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override {
    return objective_.evaluate(batch, hidden);
  }

  Measures measures;

 private:
  objective::PreferenceObjective objective_;
};

MakeObjective with(const objective::PreferenceConfig& config, const at::Tensor& reference,
                   ops::Path path = ops::Path::plain) {
  return [=](RankOfLayout& rank) {
    return std::make_unique<OwnedPreference>(rank, config, reference, path);
  };
}

std::vector<objective::PreferenceConfig> all_configs() {
  std::vector<objective::PreferenceConfig> configs;
  for (const char* logprob : {"sum", "mean", "padded_mean"}) {
    configs.push_back({.beta = 0.3, .logprob = logprob});
    configs.push_back({.beta = 0.3, .logprob = logprob, .label_smoothing = 0.2, .sft_weight = 0.5});
    configs.push_back({.beta = 0.3, .logprob = logprob, .loss = "ipo", .sft_weight = 1.5});
  }
  configs.push_back({.beta = 0.3, .logprob = "mean", .loss = "orpo", .sft_weight = 1});
  configs.push_back({.beta = 2, .logprob = "mean", .loss = "simpo", .gamma = 0.7});
  configs.push_back(
      {.beta = 2, .logprob = "mean", .loss = "simpo", .gamma = 0.7, .label_smoothing = 0.2});
  return configs;
}

/// Returns the scores of the reference that the loss of `config` has, or zeros.
at::Tensor reference_of(const objective::PreferenceConfig& config, const at::Tensor& reference) {
  return objective::has_reference(config.loss) ? reference : at::zeros_like(reference);
}

std::string name(const objective::PreferenceConfig& config) {
  return config.logprob + " " + config.loss;
}

void expect_autograd(const parallel::Microbatch& batch, const std::vector<Ranks>& layouts) {
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  at::Tensor given = some_reference(batch.num_pairs);  // 0 for sequences without targets
  given.mul_(plain_scores(batch, hidden, weight).counts.gt(0));
  for (const objective::PreferenceConfig& config : all_configs()) {
    const at::Tensor reference = reference_of(config, given);
    const LossAndGrads expected =
        by_autograd(hidden, weight, [&](const at::Tensor& x, const at::Tensor& w) {
          return plain_loss(config, batch, reference, x, w);
        });
    for (const Ranks& ranks : layouts) {
      const LossAndGrads actual =
          by_ranks(ranks, batch, hidden, weight, kPairScale, with(config, reference));
      expect_same(actual, expected, kPairScale, 1e-11, name(config) + " " + name(ranks));
    }
  }
}

TEST(Preference, EveryFormAndLossEqualsItsAutogradOnAnyLayout) {
  expect_autograd(pairs(), kLayouts);
}

TEST(Preference, SequencesWithoutTargetsCountNothing) {
  expect_autograd(pairs({5, 1, 1, 6, 1, 1}), {{1, 1}, {2, 2}});  // one side, the other, both
  parallel::Microbatch masked = pairs();
  masked.targets.fill_(objective::kIgnoredTarget);
  expect_autograd(masked, {{1, 1}, {2, 2}});
}

TEST(Preference, ABatchOfNoPairsIsZero) {
  const parallel::Microbatch none = pairs({});
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  const LossAndGrads actual =
      by_ranks({2, 1}, none, hidden, weight, kPairScale, with({}, at::zeros({0}, at::kDouble)));
  EXPECT_EQ(actual.loss.item<double>(), 0);
  EXPECT_EQ(actual.hidden.count_nonzero().item<std::int64_t>(), 0);
}

TEST(Preference, GradientsAreTheSlopeOfTheEvaluatedLoss) {
  const parallel::Microbatch batch = pairs();
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  for (const objective::PreferenceConfig& config : all_configs()) {
    const at::Tensor reference = reference_of(config, some_reference(batch.num_pairs));
    const LossAndGrads grads = by_ranks({}, batch, hidden, weight, 1, with(config, reference));
    expect_differences(grads, hidden, weight, [&](const at::Tensor& x, const at::Tensor& w) {
      double loss = 0;
      comm::run_ranks(1, [&](comm::Communicator& world) {
        RankOfLayout rank(world, {}, w);
        loss = OwnedPreference(rank, config, reference).evaluate(batch, x)[0].item<double>();
      });
      return loss;
    });
  }
}

TEST(Preference, StaysNearFp64InLowPrecision) {
  struct Low {
    device::ParamDTypes dtypes;
    // The bound for gradients: bf16 keeps 8 bits of logits, of their gradient and of the result.
    double bound;
  };

  const parallel::Microbatch batch = pairs();
  for (const Low& low :
       {Low{{at::kFloat, at::kFloat}, 2e-6}, {{at::kBFloat16, at::kFloat}, 3e-2}}) {
    const at::Tensor hidden = normal({1, kLength, kWidth}, 1).to(low.dtypes.compute);
    const at::Tensor weight = normal({kClasses, kWidth}, 2).to(low.dtypes.compute).to(at::kFloat);
    for (const objective::PreferenceConfig& config : all_configs()) {
      const at::Tensor reference = reference_of(config, some_reference(batch.num_pairs));
      const LossAndGrads expected =
          by_autograd(hidden, weight, [&](const at::Tensor& x, const at::Tensor& w) {
            return plain_loss(config, batch, reference, x, w);
          });
      for (const ops::Path path : {ops::Path::plain, ops::Path::fast}) {
        const LossAndGrads actual = by_ranks({}, batch, hidden, weight, kPairScale,
                                             with(config, reference, path), low.dtypes);
        expect_same(actual, expected, kPairScale, low.bound,
                    name(config) + " " + at::toString(low.dtypes.compute));
      }
    }
  }
}

/// The frozen model itself as the reference.
class SameModel final : public objective::ReferenceScores {
 public:
  SameModel(RankOfLayout& rank, const at::Tensor& hidden, ops::Path path)
      : rank_(rank), hidden_(hidden), path_(path) {}

  at::Tensor sums(const parallel::Microbatch& batch) override {
    return objective::sequence_scores(batch, hidden_,
                                      objective::head_of(rank_.registry, 0, rank_.tensor, path_),
                                      parallel::context_group(rank_.mesh))
        .sums;
  }

 private:
  RankOfLayout& rank_;
  at::Tensor hidden_;
  ops::Path path_;
};

std::map<std::string, double> values_of(Measures& measures) {
  CombinedMeasures alone;
  alone.add(measures, 0);
  return alone.values(measures);
}

TEST(Preference, WithItselfAsReferenceMarginsAreExactlyZero) {
  const parallel::Microbatch batch = pairs();
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1).mul(3);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  for (const auto dtype : {at::kDouble, at::kFloat, at::kBFloat16}) {
    const device::ParamDTypes dtypes{dtype, dtype == at::kDouble ? at::kDouble : at::kFloat};
    for (const Ranks& ranks : kLayouts) {
      for (const char* logprob : {"sum", "mean", "padded_mean"}) {
        std::atomic<int> gave_loss = 0;
        comm::run_ranks(ranks.tp * ranks.cp, [&](comm::Communicator& world) {
          RankOfLayout rank(world, ranks, weight, dtypes);
          const parallel::Microbatch mine = parallel::shard_sequence(batch, rank.mesh);
          const at::Tensor own = rank.own(hidden, mine).to(dtype);
          Measures measures;
          objective::PreferenceObjective objective(
              rank.registry,
              {.tensor = rank.tensor,
               .context = parallel::context_group(rank.mesh),
               .config = {.logprob = logprob},
               .seq_len = kSeqLen},
              std::make_unique<SameModel>(rank, own, ops::Path::fast), measures);
          objective::ObjectiveGrads saved;
          const double loss = objective.forward(mine, own, 1, saved).item<double>();
          if (rank.mesh.rank(parallel::Axis::cp) != 0) {
            EXPECT_EQ(loss, 0);
            return;
          }
          ++gave_loss;
          EXPECT_NEAR(loss / 3, kLn2, 1e-12);
          if (rank.mesh.rank(parallel::Axis::tp) != 0) return;
          const auto values = values_of(measures);
          EXPECT_EQ(values.at("margin"), 0);
          EXPECT_EQ(values.at("accuracy"), 0);
          EXPECT_EQ(values.at("reward_chosen"), 0);
        });
        EXPECT_EQ(gave_loss, ranks.tp);
      }
    }
  }
}

}  // namespace
}  // namespace trireme::testing
