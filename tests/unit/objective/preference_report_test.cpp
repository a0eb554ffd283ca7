#include <cmath>
#include <map>
#include <mutex>

#include "core/error.hpp"
#include "support/combined_measures.hpp"
#include "unit/objective/pairs.hpp"

namespace trireme::testing {
namespace {

TEST(Preference, MeasuresAreMeansOverThePairsOfAStep) {
  const objective::PreferenceConfig config{.beta = 0.2};
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  const std::vector<parallel::Microbatch> batches{pairs(), pairs({4, 6})};
  for (const Ranks& ranks : kLayouts) {
    // Sums of three pairs, then of one more in the same step.
    std::map<std::string, double> expected;
    double loss = 0;
    for (const parallel::Microbatch& batch : batches) {
      const at::Tensor reference = mixed_reference(batch.num_pairs);
      const at::Tensor sums = plain_scores(batch, hidden, weight).sums;
      const at::Tensor rewards = ((sums - reference) * config.beta).view({-1, 2});
      const at::Tensor margins = rewards.select(1, 0) - rewards.select(1, 1);
      expected["reward_chosen"] += rewards.select(1, 0).sum().item<double>() / 4;
      expected["reward_rejected"] += rewards.select(1, 1).sum().item<double>() / 4;
      expected["logp_chosen"] += sums.view({-1, 2}).select(1, 0).sum().item<double>() / 4;
      expected["logp_rejected"] += sums.view({-1, 2}).select(1, 1).sum().item<double>() / 4;
      expected["margin"] += margins.sum().item<double>() / 4;
      expected["accuracy"] += margins.gt(0).sum().item<double>() / 4;
      loss += plain_loss(config, batch, reference, hidden, weight).item<double>();
    }
    ASSERT_GT(expected["accuracy"], 0);
    ASSERT_LT(expected["accuracy"], 1);
    expected["num_pairs"] = 4;
    CombinedMeasures combined;
    std::mutex mutex;
    at::Tensor evaluated = at::zeros({3}, at::kDouble);
    comm::run_ranks(ranks.tp * ranks.cp, [&](comm::Communicator& world) {
      RankOfLayout rank(world, ranks, weight);
      // A reference that recognizes each batch by its number of pairs.
      class ByPairs final : public objective::ReferenceScores {
       public:
        at::Tensor sums(const parallel::Microbatch& batch) override {
          return mixed_reference(batch.num_pairs);
        }
      };

      Measures measures;
      objective::PreferenceObjective objective(rank.registry,
                                               {.tensor = rank.tensor,
                                                .context = parallel::context_group(rank.mesh),
                                                .config = config,
                                                .seq_len = kSeqLen},
                                               std::make_unique<ByPairs>(), measures);
      ASSERT_EQ(objective.term(), objective::LossTerm::pair);
      ASSERT_EQ(objective.evaluated().size(), 2U);
      at::Tensor sums = at::zeros({3}, at::kDouble);
      objective::ObjectiveGrads saved;
      parallel::Microbatch before = batches[0];  // an earlier step, which the report drops
      before.step = 0;
      const parallel::Microbatch early = parallel::shard_sequence(before, rank.mesh);
      (void)objective.forward(early, rank.own(hidden, early), 1, saved);
      for (const parallel::Microbatch& batch : batches) {
        const parallel::Microbatch mine = parallel::shard_sequence(batch, rank.mesh);
        (void)objective.forward(mine, rank.own(hidden, mine), 1, saved);
        sums.add_(objective.evaluate(mine, rank.own(hidden, mine)));
      }
      const std::lock_guard lock(mutex);
      combined.add(measures, world.rank());
      if (rank.mesh.rank(parallel::Axis::tp) == 0) evaluated.add_(sums);
      if (combined.ranks() < ranks.tp * ranks.cp) return;
      const std::map<std::string, double> values = combined.values(measures);
      for (const auto& [what, value] : expected)
        EXPECT_NEAR(values.at(what), value, 1e-11) << what << " " << name(ranks);
      EXPECT_EQ(values.size(), expected.size());
    });
    EXPECT_NEAR(evaluated[0].item<double>(), loss, 1e-11) << name(ranks);
    EXPECT_NEAR(evaluated[1].item<double>() / 4, expected["accuracy"], 1e-11);
    EXPECT_NEAR(evaluated[2].item<double>() / 4, expected["margin"], 1e-11);
  }
}

TEST(Preference, AStoredReferenceFindsItsPairsByTheirKeys) {
  const parallel::Microbatch batch = pairs();  // pairs 10, 9 and 8 of the data set
  const at::Tensor counts =
      plain_scores(batch, normal({1, kLength, kWidth}, 1), normal({kClasses, kWidth}, 2)).counts;
  const auto count = [&](std::int64_t i) {
    return static_cast<std::int32_t>(counts[i].item<double>());
  };
  std::vector<objective::PairScore> scores;
  for (const std::int64_t pair : {2, 0, 1}) {
    const auto at = static_cast<double>(pair);
    scores.push_back({key_of_record(10 - pair),
                      10 - pair,
                      {-3 * at, -3 * at - 1.5},
                      {count(2 * pair), count(2 * pair + 1)}});
  }
  for (const Ranks& ranks : {Ranks{1, 1}, {1, 2}}) {
    comm::run_ranks(ranks.cp, [&](comm::Communicator& world) {
      const parallel::Mesh mesh(world, RankOfLayout::config(ranks));
      const parallel::Microbatch mine = parallel::shard_sequence(batch, mesh);
      objective::StoredReference stored(scores, "FILE", parallel::context_group(mesh));
      const at::Tensor got = stored.sums(mine);
      for (std::int64_t i = 0; i < 6; ++i)
        EXPECT_EQ(got[i].item<double>(), -1.5 * static_cast<double>(i));
    });
  }
  const auto message = [&](const parallel::Microbatch& asked,
                           const std::vector<objective::PairScore>& of) {
    try {
      objective::StoredReference stored(of, "FILE");
      (void)stored.sums(asked);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  parallel::Microbatch moved =
      batch;  // the index of a pair in its data set does not decide its score
  moved.pair_records = {0, 1, 2};
  EXPECT_EQ(message(moved, scores), "accepted");
  parallel::Microbatch unknown = batch;
  unknown.pair_records[1] = 3;
  unknown.pair_keys[1] = key_of_record(3);
  EXPECT_NE(message(unknown, scores).find("FILE: no log-probabilities of pair 3"),
            std::string::npos);
  std::vector<objective::PairScore> others = scores;
  ++others[2].counts[0];
  EXPECT_NE(message(batch, others).find("pair 9 of the data set has"), std::string::npos);
}

TEST(Preference, ScoresOfABatchMakeAStoredReference) {
  const parallel::Microbatch batch = pairs();
  const at::Tensor hidden = normal({1, kLength, kWidth}, 1);
  const at::Tensor weight = normal({kClasses, kWidth}, 2);
  const objective::SequenceScores scores =
      objective::sequence_scores(batch, hidden, {weight, {}, 0, kClasses, ops::Path::plain}, {});

  const std::vector<objective::PairScore> samples_are_pairs = objective::pair_scores(batch, scores);

  ASSERT_EQ(samples_are_pairs.size(), 3U);
  EXPECT_EQ(samples_are_pairs[1].document, 9);
  objective::StoredReference stored(samples_are_pairs, "FILE");
  EXPECT_TRUE(stored.sums(batch).equal(scores.sums));
}

TEST(Preference, EveryBadValueIsOneProblem) {
  const auto problems_of = [](const objective::PreferenceConfig& config) {
    Problems problems;
    check(config, problems);
    return problems.lines();
  };
  EXPECT_TRUE(problems_of({}).empty());
  EXPECT_TRUE(problems_of({.loss = "ipo"}).empty());
  const double nan = std::nan("");
  const std::vector<std::pair<objective::PreferenceConfig, std::string>> bad{
      {{.beta = 0}, "dpo.beta = 0, must be more than 0"},
      {{.beta = nan}, "dpo.beta"},
      {{.beta = 1e30}, "dpo.beta"},
      {{.logprob = "average"}, "dpo.logprob = average, must be"},
      {{.score = "last"}, "dpo.score = last, must be"},
      {{.loss = "hinge"}, "dpo.loss = hinge, must be"},
      {{.label_smoothing = 0.5}, "dpo.label_smoothing = 0.5, must be in [0, 0.5)"},
      {{.loss = "ipo", .label_smoothing = 0.1}, "must be 0 with dpo.loss = ipo"},
      {{.sft_weight = -1}, "dpo.sft_weight = -1, must be 0 or more"},
      {{.sft_weight = nan}, "dpo.sft_weight"}};
  for (const auto& [config, text] : bad) {
    const auto lines = problems_of(config);
    ASSERT_EQ(lines.size(), 1U) << text;
    EXPECT_NE(lines[0].find(text), std::string::npos) << lines[0];
  }
}

TEST(Preference, ABatchWithoutPairsIsAnInternalError) {
  const parallel::Microbatch rows = batch_of_rows(1);
  const objective::TargetRows targets(rows, normal({1, kLength, kWidth}, 1));
  EXPECT_THROW((void)objective::sequences_of(rows, targets), Error);
  parallel::Microbatch few = pairs();
  few.num_pairs = 2;
  EXPECT_THROW((void)objective::sequences_of(
                   few, objective::TargetRows(few, normal({1, kLength, kWidth}, 1))),
               Error);
}

}  // namespace
}  // namespace trireme::testing
