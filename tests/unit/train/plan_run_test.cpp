#include "train/plan/plan_run.hpp"

#include <gtest/gtest.h>

#include "core/error.hpp"
#include "train/start/run_keys.hpp"
#include "unit/data/small_set.hpp"

namespace trireme::train {
namespace {

using PlanKeys = std::vector<std::pair<const char*, std::string>>;

TEST(PlanRun, RefusesTheShapesThatTheRanksOfTheRunRefuse) {
  const testing::TestDirectory folder("plan_run");
  testing::write_numbered_set(folder.path(), 0, 200, 9, 1, {16});
  const auto refusal = [&](const PlanKeys& given,
                           const std::string& kept_local_steps) -> std::string {
    const std::unique_ptr<Task> task = task_rows().front().make();
    RunConfig config;
    const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config, task->section());
    keys->set("model.preset", "tiny", "--model.preset");
    keys->set("data.path", folder.path().string(), "--data");
    for (const auto& [key, value] : given) keys->set(key, value, formatted("--{}", key));
    RunStart start;
    finish_task_keys(*task, "pretrain", config, *keys, start);
    if (!kept_local_steps.empty()) {
      start.kind = RunStart::Kind::resume_run;
      start.values.config["parallel.local_steps"] = kept_local_steps;
    }
    try {
      (void)plan_run(*task, config, *keys, start, 2, /*on_gpu=*/false);
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  };

  // The model shape is accepted: this data set has another problem.
  const std::string next = refusal({}, "");
  EXPECT_NE(next.find("tokenizer.json is missing"), std::string::npos) << next;
  EXPECT_EQ(refusal({{"train.seq_len", "32"}, {"model.max_seq_len", "16"}}, ""),
            "train.seq_len = 32 is more than model.max_seq_len = 16");
  // A resumed run keeps its local_steps, and the proposed layout has them.
  const std::string kept = refusal({{"parallel.tp", "3"}}, "2");
  EXPECT_NE(kept.find("local_steps 2"), std::string::npos) << kept;
}

TEST(PlanRun, CountsTheCheckpointsThatStay) {
  CheckpointConfig config{.every = 10, .keep_last = 3};
  EXPECT_EQ(checkpoints_on_disk(config, 1000), 4);
  EXPECT_EQ(checkpoints_on_disk(config, 15), 2) << "the run writes two";
  config.keep_best = 2;
  config.keep_every = 100;
  EXPECT_EQ(checkpoints_on_disk(config, 1000), 16);
  config.keep_last = 0;
  EXPECT_EQ(checkpoints_on_disk(config, 1000), 100) << "all stay";
  config.every = 0;
  EXPECT_EQ(checkpoints_on_disk(config, 1000), 1);
}

}  // namespace
}  // namespace trireme::train
