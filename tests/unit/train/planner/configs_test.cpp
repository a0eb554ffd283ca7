/// Checks slurm/configs/gpt_*.toml: shapes of the table, and layouts that are valid and fit.

#include <gtest/gtest.h>

#include <filesystem>

#include "tests/unit/train/planner/published.hpp"
#include "train/planner/rank_layouts.hpp"
#include "train/start/run_keys.hpp"

namespace trireme::planner {
namespace {

std::filesystem::path file_of(const MegatronRow& row) {
  std::string name(row.preset);
  name.replace(name.find('-'), 1, "_");
  return std::filesystem::path(TRIREME_SOURCE_ROOT) / "slurm/configs" / (name + ".toml");
}

TEST(GptConfigs, HaveTheTableSLayoutsAndFit) {
  for (const MegatronRow& row : megatron_rows()) {
    PlanRequest request;
    const auto keys = train::make_run_keys(request.config);
    keys->load_file(file_of(row));
    train::finish_run_keys(request.config, *keys);
    keys->finish();
    model::resolve(request.config.model, 0);
    const parallel::ParallelConfig& parallel = request.config.parallel;
    const int ranks = static_cast<int>(row.tp * row.pp) * kMegatronData;
    const Cluster cluster{device_kind("h100"), ranks / 8, 8};
    StepPredictor predictor(cluster, {});

    EXPECT_EQ(request.config.model.preset, row.preset);
    EXPECT_EQ(parallel.tp, row.tp);
    EXPECT_EQ(parallel.pp, row.pp);
    EXPECT_EQ(request.config.train.global_batch, row.batch);
    ASSERT_TRUE(is_valid_layout(request, parallel, ranks)) << row.preset;
    const PlannedLayout one =
        predict_layout(request, {parallel, request.config.train.micro_batch}, predictor);
    EXPECT_EQ(one.micro_steps * request.config.train.micro_batch * kMegatronData, row.batch);
    EXPECT_LE(one.memory.total(), usable_bytes(cluster)) << row.preset;
  }
}

TEST(GptConfigs, HaveTheTableSParameters) {
  // 12 L h^2 + 2 V h, like the names of the rows; an MLP that is rounded to 64 adds at most half a
  // percent.
  for (const MegatronRow& row : megatron_rows()) {
    const model::ModelConfig model = model_of(row.preset, kMegatronVocabulary);
    const auto h = static_cast<double>(model.hidden_size);
    const double named = 12 * static_cast<double>(model.num_layers) * h * h +
                         2 * static_cast<double>(kMegatronVocabulary) * h;
    EXPECT_NEAR(static_cast<double>(model.num_parameters()) / named, 1, 5e-3) << row.preset;
  }
}

}  // namespace
}  // namespace trireme::planner
