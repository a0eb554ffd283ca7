/// Compares the formulas of train/cost with values that are known independently.

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "model/config.hpp"
#include "optim/config.hpp"
#include "train/cost/memory_formula.hpp"
#include "train/cost/rank_units.hpp"
#include "train/cost/rank_widths.hpp"
#include "train/cost/state_bytes.hpp"

namespace trireme::train {
namespace {

constexpr device::ParamDTypes kFp32{at::kFloat, at::kFloat};
constexpr device::ParamDTypes kBf16{at::kBFloat16, at::kFloat};

model::ModelConfig small_model(std::int64_t experts = 0) {
  model::ModelConfig model;
  model.hidden_size = 96;
  model.num_layers = 4;
  model.num_heads = 12;
  model.num_kv_heads = 6;
  model.head_dim = 16;
  model.intermediate_size = 192;
  model.tie_embeddings = false;
  model.moe.num_experts = experts;
  if (experts > 0) model.moe.moe_intermediate_size = 64;
  model::resolve(model, 960);
  return model;
}

UpdateFacts facts_of(const model::ModelConfig& model, device::ParamDTypes dtypes,
                     const parallel::ParallelConfig& parallel, int ranks) {
  return update_facts(model, optim::OptimConfig{}, dtypes, parallel, ranks,
                      {.rows = 2, .length = 48}, {});
}

double sum_of(const StateBytes& state) {
  return state.weights + state.main + state.grads + state.optimizer;
}

TEST(StateBytes, AreThePublishedBytesOfAParameter) {
  const double d = 4;
  const double bf16[] = {18, 6 + 12 / d, 2 + 16 / d, 18 / d};
  const double fp32[] = {16, 8 + 8 / d, 4 + 12 / d, 16 / d};
  for (const std::int64_t zero : {0, 1, 2, 3}) {
    parallel::ParallelConfig parallel;
    parallel.zero = zero;
    const Elements elements{1000, 0};
    EXPECT_EQ(sum_of(state_bytes(facts_of(small_model(), kBf16, parallel, 4), elements)),
              1000 * bf16[zero]);
    EXPECT_EQ(sum_of(state_bytes(facts_of(small_model(), kFp32, parallel, 4), elements)),
              1000 * fp32[zero]);
  }
}

TEST(StateBytes, AreShardedFromStageOneForReproducibleGradients) {
  parallel::ParallelConfig parallel;
  parallel.reproducible = true;
  const Elements elements{1000, 0};
  EXPECT_EQ(state_bytes(facts_of(small_model(), kBf16, parallel, 4), elements).grads, 4000);
  parallel.zero = 1;
  EXPECT_EQ(state_bytes(facts_of(small_model(), kBf16, parallel, 4), elements).grads, 1000);
}

TEST(StateBytes, IncludeAnFp32MasterCopyForOffloadedState) {
  parallel::ParallelConfig parallel;
  const Elements elements{1000, 0};
  EXPECT_EQ(state_bytes(facts_of(small_model(), kFp32, parallel, 1), elements).main, 0);
  parallel.offload = "optimizer";
  EXPECT_EQ(state_bytes(facts_of(small_model(), kFp32, parallel, 1), elements).main, 4000);
}

TEST(StateBytes, ForTheMeanRankAreTheMeanOverAllRanks) {
  std::vector<parallel::ParallelConfig> layouts(5);
  layouts[1].tp = 2;
  layouts[2].pp = 2;
  layouts[3].ep = 4;
  layouts[3].zero = 1;
  layouts[4].tp = 2;
  layouts[4].etp = 1;
  layouts[4].ep = 2;
  layouts[4].zero = 3;
  for (const parallel::ParallelConfig& parallel : layouts) {
    const UpdateFacts facts = facts_of(small_model(/*experts=*/8), kBf16, parallel, 8);
    double mean = 0;
    for (int rank = 0; rank < 8; ++rank) {
      const RankMemory one = memory_formula(facts, rank);
      mean += static_cast<double>(one.weight_bytes + one.main_bytes + one.grad_bytes +
                                  one.optimizer_bytes) /
              8;
    }
    // Each rank of tp has whole norms and routers, and units are padded.
    EXPECT_NEAR(sum_of(state_bytes(facts, mean_elements(facts).trained)) / mean, 1, 0.02)
        << "tp " << parallel.tp << " pp " << parallel.pp << " ep " << parallel.ep;
  }
}

TEST(StateBytes, InACheckpointAreThoseOfMasterWeightsAndOptimizerState) {
  UpdateFacts facts = facts_of(small_model(), kBf16, {}, 1);
  EXPECT_EQ(checkpoint_bytes(facts), 12 * facts.model.num_parameters());
  facts.lora.rank = 2;
  EXPECT_EQ(checkpoint_bytes(facts), 12 * model::num_lora_parameters(facts.lora, facts.model));
}

TEST(RankWidths, AddUpToTheWholeOverTheRanksOfTp) {
  parallel::ParallelConfig parallel;
  parallel.tp = 5;  // no size is divisible by 5
  const UpdateFacts facts = facts_of(small_model(), kFp32, parallel, 5);
  std::int64_t heads = 0;
  std::int64_t mlp = 0;
  std::int64_t vocab = 0;
  RankWidths most;
  for (int rank = 0; rank < 5; ++rank) {
    const RankWidths one = rank_widths(facts, {.tp = rank});
    heads += one.query_heads;
    mlp += one.mlp;
    vocab += one.vocab;
    most.queries = std::max(most.queries, one.queries);
    most.mlp = std::max(most.mlp, one.mlp);
  }
  EXPECT_EQ(heads, 12);
  EXPECT_EQ(mlp, 192);
  EXPECT_EQ(vocab, 960);
  const RankWidths largest = rank_widths(facts, coords_of(facts, largest_rank(facts, 0)));
  EXPECT_EQ(largest.queries, 3 * 16);
  EXPECT_EQ(largest.queries, most.queries);
  EXPECT_EQ(largest.mlp, most.mlp);
  EXPECT_TRUE(largest.shares_keys) << "12 heads on 5 ranks cut pairs of heads that read one key";
}

TEST(MemoryFormula, TheLargestRankIsNotBelowAnyRank) {
  std::vector<parallel::ParallelConfig> layouts(4);
  layouts[1].tp = 5;
  layouts[2].pp = 2;
  layouts[2].schedule = "gpipe";
  layouts[3].tp = 5;
  layouts[3].pp = 2;
  for (const parallel::ParallelConfig& parallel : layouts) {
    const UpdateFacts facts = facts_of(small_model(), kFp32, parallel, 10);
    double most = 0;
    for (int rank = 0; rank < 10; ++rank)
      most = std::max(most, known_bytes(memory_formula(facts, rank)));
    EXPECT_EQ(most_known_bytes(facts), most) << "tp " << parallel.tp << " pp " << parallel.pp;
  }
}

TEST(UpdateFacts, AMessageBetweenStagesIsTheResidualStreamOfARank) {
  parallel::ParallelConfig parallel;
  parallel.tp = 2;
  parallel.cp = 3;
  EXPECT_EQ(facts_of(small_model(), kBf16, parallel, 6).stream_bytes(), 2 * 48 / 3 * 96 * 2);
  parallel.sequence_parallel = true;
  EXPECT_EQ(facts_of(small_model(), kBf16, parallel, 6).stream_bytes(), 2 * 48 / 3 / 2 * 96 * 2);
}

TEST(RankUnits, ARewardHeadIsAUnitOfTheLastStage) {
  parallel::ParallelConfig parallel;
  parallel.pp = 2;
  UpdateFacts facts = facts_of(small_model(), kFp32, parallel, 2);
  facts.micro_steps = 2;
  UpdateFacts reward = facts;
  reward.reward_head = true;
  EXPECT_EQ(rank_units(reward, 0).elements, rank_units(facts, 0).elements);
  std::vector<std::int64_t> expected = rank_units(facts, 1).elements;
  expected.push_back(128);  // 96 weights, padded to a multiple of 64
  EXPECT_EQ(rank_units(reward, 1).elements, expected);
  EXPECT_EQ(memory_formula(reward, 1).weight_bytes - memory_formula(facts, 1).weight_bytes,
            128 * 4);
  EXPECT_EQ(checkpoint_bytes(reward) - checkpoint_bytes(facts), 96 * 4 * 3)
      << "the weights and two tensors of optimizer state";
}

}  // namespace
}  // namespace trireme::train
