#include "objective/kto.hpp"

#include <algorithm>
#include <map>
#include <mutex>

#include "support/combined_measures.hpp"
#include "unit/objective/pairs.hpp"

namespace trireme::testing {
namespace {

/// Returns labeled answers: each pair has one sequence, and the other has the length 0. `mismatched`
/// has the lengths of the other sequences.
parallel::Microbatch answers(const std::vector<std::int64_t>& lengths = {5, 0, 0, 6, 4, 0},
                             const std::vector<std::int64_t>& mismatched = {0, 4, 3, 0, 0, 5}) {
  const auto make = [](const std::vector<std::int64_t>& sequences) {
    parallel::Microbatch batch = pairs(sequences);
    auto& bounds = batch.bounds[0];
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    return batch;
  };
  parallel::Microbatch batch = make(lengths);
  parallel::Microbatch other = make(mismatched);
  other.targets =
      at::where(other.targets.ge(0), (other.targets + 3).remainder(kClasses), other.targets);
  batch.mismatched = std::make_shared<const parallel::Microbatch>(other);
  return batch;
}

/// Scores that are given for the answers and for the mismatched ones, 0 without targets.
class GivenScores final : public objective::ReferenceScores {
 public:
  GivenScores(at::Tensor own, at::Tensor mismatched)
      : own_(std::move(own)), mismatched_(std::move(mismatched)) {}

  at::Tensor sums(const parallel::Microbatch& batch) override {
    return batch.mismatched ? own_ : mismatched_;
  }

 private:
  at::Tensor own_;
  at::Tensor mismatched_;
};

/// Scores that depend only on the record of each pair: those of a model, or of its reference.
at::Tensor scores_of(const parallel::Microbatch& batch, double shift) {
  const parallel::ContextGroup alone;
  const at::Tensor counts = objective::sequence_counts(batch, alone);
  at::Tensor sums = at::zeros_like(counts);
  for (std::int64_t i = 0; i < counts.numel(); ++i) {
    const auto record = static_cast<double>(batch.pair_records[static_cast<std::size_t>(i / 2)]);
    if (counts[i].item<double>() > 0) sums[i] = -6 - std::sin(record) + shift;
  }
  return sums;
}

/// The loss of a batch by its definition, one answer after another.
at::Tensor plain_kto(const objective::KtoConfig& config, const parallel::Microbatch& batch,
                     const at::Tensor& reference, double kl, const at::Tensor& x,
                     const at::Tensor& w) {
  const auto [sums, counts] = plain_scores(batch, x, w);
  at::Tensor total = at::zeros({}, at::kDouble);
  for (std::int64_t i = 0; i < 2 * batch.num_pairs; ++i) {
    if (counts[i].item<double>() == 0) continue;
    const at::Tensor r = sums[i] - reference[i];
    const double z = config.loss == "kto" ? kl : 0;
    total =
        total + (i % 2 == 0 ? config.desirable_weight * (1 - at::sigmoid(config.beta * (r - z)))
                            : config.undesirable_weight * (1 - at::sigmoid(config.beta * (z - r))));
  }
  return total;
}

objective::KtoObjective::Setup setup_of(RankOfLayout& rank, const objective::KtoConfig& config) {
  return {.path = ops::Path::plain,
          .tensor = rank.tensor,
          .context = parallel::context_group(rank.mesh),
          .config = config,
          .update_groups = {&rank.mesh.group(parallel::Axis::data)}};
}

/// An objective with everything that it needs. It takes each batch for a whole update.
class OwnedKto final : public objective::Objective {
 public:
  OwnedKto(RankOfLayout& rank, const objective::KtoConfig& config,
           const parallel::Microbatch& whole, double gain)
      : objective_(
            rank.registry, setup_of(rank, config),
            std::make_unique<GivenScores>(scores_of(whole, 0), scores_of(*whole.mismatched, gain)),
            std::make_unique<GivenScores>(scores_of(whole, 0), scores_of(*whole.mismatched, 0)),
            measures_) {}

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     objective::ObjectiveGrads& saved) override {
    objective_.survey(std::span(&batch, 1), /*last=*/true);
    return objective_.forward(batch, hidden, grad_scale, saved);
  }

  void backward(objective::ObjectiveGrads& saved) override { objective_.backward(saved); }

  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override {
    return objective_.evaluate(batch, hidden);
  }

 private:
  Measures measures_;
  objective::KtoObjective objective_;
};

const std::vector<objective::KtoConfig>& kto_configs() {
  static const std::vector<objective::KtoConfig> configs{
      {.beta = 0.3},
      {.beta = 0.2, .desirable_weight = 1.5, .undesirable_weight = 0.5},
      {.beta = 0.3, .loss = "apo_zero_unpaired", .desirable_weight = 0.7}};
  return configs;
}

TEST(Kto, EveryLossEqualsItsAutogradOnAnyLayout) {
  const parallel::Microbatch batch = answers();
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  for (const objective::KtoConfig& config : kto_configs()) {
    for (const double gain : {1.25, -2.0}) {  // a negative mean gives a KL estimate of 0
      const LossAndGrads expected =
          by_autograd(hidden, weight, [&](const at::Tensor& x, const at::Tensor& w) {
            return plain_kto(config, batch, scores_of(batch, 0), std::max(gain, 0.0), x, w);
          });
      for (const Ranks& ranks : kLayouts) {
        const LossAndGrads actual =
            by_ranks(ranks, batch, hidden, weight, 0.125, [&](RankOfLayout& rank) {
              return std::make_unique<OwnedKto>(rank, config, batch, gain);
            });
        expect_same(actual, expected, 0.125, 1e-11,
                    config.loss + " " + name(ranks) + " gain " + std::to_string(gain));
      }
    }
  }
}

TEST(Kto, AnswersWithoutTargetsCountNothing) {
  parallel::Microbatch batch = answers();
  batch.targets = at::full_like(batch.targets, objective::kIgnoredTarget);
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  for (const parallel::Microbatch& one : {batch, answers({}, {})}) {
    const LossAndGrads actual = by_ranks({2, 2}, one, hidden, weight, 1, [&](RankOfLayout& rank) {
      return std::make_unique<OwnedKto>(rank, objective::KtoConfig{}, one, 1);
    });
    EXPECT_EQ(actual.loss.item<double>(), 0);
    EXPECT_EQ(actual.hidden.count_nonzero().item<std::int64_t>(), 0);
  }
}

/// Scores by record, so that the answers may be split over batches and ranks.
class ScoresByRecord final : public objective::ReferenceScores {
 public:
  explicit ScoresByRecord(bool own) : own_(own) {}

  at::Tensor sums(const parallel::Microbatch& batch) override {
    at::Tensor sums = scores_of(batch, 0);
    if (!own_ || batch.mismatched) return sums;
    for (std::int64_t i = 0; i < sums.numel(); ++i)
      sums[i].mul_(0.5 +
                   0.1 * static_cast<double>(batch.pair_records[static_cast<std::size_t>(i / 2)]));
    return sums;
  }

 private:
  bool own_;
};

/// Returns the results of evaluate() and of the report of a step, over all ranks. Rank r of `ranks`
/// has the batches r, r + ranks, .. and surveys them in parts of `per_part` batches.
std::pair<at::Tensor, std::map<std::string, double>> over_ranks(
    const std::vector<parallel::Microbatch>& batches, int ranks, std::size_t per_part) {
  at::Tensor evaluated = at::zeros({6}, at::kDouble);
  std::map<std::string, double> values;
  CombinedMeasures combined;
  std::mutex mutex;
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    Ranks alone;
    comm::run_ranks(1, [&](comm::Communicator& self) {
      RankOfLayout rank(self, alone, weight);
      Measures measures;
      objective::KtoObjective::Setup setup = setup_of(rank, {.beta = 0.3});
      setup.update_groups = {&world};
      objective::KtoObjective objective(rank.registry, setup,
                                        std::make_unique<ScoresByRecord>(true),
                                        std::make_unique<ScoresByRecord>(false), measures);
      EXPECT_EQ(objective.term(), objective::LossTerm::answer);
      std::vector<parallel::Microbatch> own;
      for (std::size_t i = static_cast<std::size_t>(world.rank()); i < batches.size();
           i += static_cast<std::size_t>(ranks))
        own.push_back(batches[i]);
      const std::span<const parallel::Microbatch> all(own);
      for (std::size_t i = 0; i < own.size(); i += per_part)
        objective.survey(all.subspan(i, std::min(per_part, own.size() - i)),
                         i + per_part >= own.size());
      at::Tensor sums = at::zeros({6}, at::kDouble);
      objective::ObjectiveGrads saved;
      for (const parallel::Microbatch& batch : own) {
        const auto seed = static_cast<std::uint64_t>(batch.pair_records.front());
        const at::Tensor hidden = normal({1, kLength, kWidth}, seed);
        (void)objective.forward(batch, hidden, 1, saved);
        sums.add_(objective.evaluate(batch, hidden));
      }
      const std::lock_guard lock(mutex);
      evaluated.add_(sums);
      combined.add(measures, world.rank());
      if (combined.ranks() == ranks) values = combined.values(measures);
    });
  });
  return {evaluated, values};
}

TEST(Kto, TheKlEstimateIsThatOfTheUpdateForAnyNumberOfRanksAndBatches) {
  std::vector<parallel::Microbatch> batches;
  for (std::int64_t i = 0; i < 6; ++i) {
    batches.push_back(i % 3 == 1 ? answers({0, 6}, {4, 0}) : answers({5, 0}, {0, 4}));
    parallel::Microbatch other = *batches.back().mismatched;
    other.pair_records = batches.back().pair_records = {i};
    batches.back().mismatched = std::make_shared<const parallel::Microbatch>(other);
  }
  const auto [expected, measures] = over_ranks(batches, 1, 6);
  EXPECT_GT(measures.at("kl"), 0.1);
  EXPECT_EQ(measures.at("num_answers"), 6);
  EXPECT_NEAR(measures.at("margin"), measures.at("reward_chosen") - measures.at("reward_rejected"),
              1e-12);
  for (const int ranks : {1, 2, 3}) {
    for (const std::size_t per_part : {1U, 2U}) {
      const auto [found, values] = over_ranks(batches, ranks, per_part);
      for (std::int64_t i = 0; i < expected.numel(); ++i)
        EXPECT_NEAR(found[i].item<double>(), expected[i].item<double>(), 1e-12)
            << ranks << " " << i;
      for (const auto& [name, value] : measures) EXPECT_NEAR(values.at(name), value, 1e-12) << name;
    }
  }
  // The means by their definition: validation reports accuracy, margin, the rewards and kl.
  EXPECT_NEAR(expected[1].item<double>() / 6, measures.at("accuracy"), 1e-12);
  EXPECT_NEAR(expected[2].item<double>() / 6, measures.at("margin"), 1e-12);
  EXPECT_NEAR(expected[5].item<double>() / 6, measures.at("kl"), 1e-12);
  double kl = 0;
  double chosen = 0;
  for (const parallel::Microbatch& batch : batches) {
    const at::Tensor own = ScoresByRecord(true).sums(*batch.mismatched);
    kl += (own - scores_of(*batch.mismatched, 0)).sum().item<double>() / 6;
    if (batch.pair_records.front() % 3 == 1) continue;
    const auto seed = static_cast<std::uint64_t>(batch.pair_records.front());
    const at::Tensor sums =
        plain_scores(batch, normal({1, kLength, kWidth}, seed), normal({kClasses, kWidth}, 2)).sums;
    chosen += 0.3 * (sums - scores_of(batch, 0))[0].item<double>() / 4;
  }
  EXPECT_NEAR(measures.at("kl"), kl, 1e-12);
  EXPECT_NEAR(measures.at("reward_chosen"), chosen, 1e-12);
}

}  // namespace
}  // namespace trireme::testing
