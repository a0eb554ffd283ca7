#include "train/start/run_keys.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "checkpoint/format/model_head.hpp"
#include "checkpoint/format/model_values.hpp"
#include "checkpoint/save/save.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "support/optim_keys.hpp"
#include "train/start/run_length.hpp"
#include "train/start/run_request.hpp"
#include "train/start/weights_start.hpp"
#include "train/state/resume.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::train {
namespace {

TEST(RunKeys, TheEndOfTheRateIsNotAboveItsPeakWhereACommandGivesIt) {
  for (const char* end : {"3e-5", "1e-5", "0"}) {
    RunConfig config;
    const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config);
    keys->set("optim.lr", "1e-5", "--optim.lr");
    keys->set("optim.min_lr", end, "--optim.min_lr");

    finish_run_keys(config, *keys);

    const std::vector<std::string>& lines = keys->problems().lines();
    ASSERT_EQ(lines.size(), end == std::string("3e-5") ? 1U : 0U) << end;
    if (!lines.empty()) {
      EXPECT_EQ(lines[0],
                "optim.min_lr = 3e-05, must be at most optim.lr = 1e-05 (--optim.min_lr)");
    }
  }
}

/// Keys of a run, given on the command line.
std::unique_ptr<config::ConfigSet> run_keys(
    RunConfig& config, const std::vector<std::pair<const char*, const char*>>& given) {
  std::unique_ptr<config::ConfigSet> keys = make_run_keys(config);
  for (const auto& [key, value] : given) keys->set(key, value, formatted("--{}", key));
  finish_run_keys(config, *keys);
  return keys;
}

TEST(RunKeys, StepsCountBeforeEpochsUnlessOnlyEpochsAreTyped) {
  const auto resolved = [](const char* file, const std::vector<const char*>& typed) {
    RunConfig config;
    const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config);
    keys->load_toml(file, "run.toml");
    for (const char* key : typed) keys->set(key, "3", formatted("--{}", key));
    finish_run_keys(config, *keys);
    EXPECT_TRUE(keys->problems().empty()) << file;
    std::string warning;
    for (const std::string& text : keys->warnings()) warning += text;
    return std::pair(config.train.steps, warning);
  };
  using Resolved = std::pair<std::int64_t, std::string>;
  EXPECT_EQ(resolved("[train]\nsteps = 200\n", {"train.epochs"}), Resolved(0, ""));
  EXPECT_EQ(resolved("[train]\nsteps = 0\n", {"train.epochs"}), Resolved(0, ""));
  EXPECT_EQ(resolved("[train]\nsteps = 200\n", {}), Resolved(200, ""));
  const std::string both =
      "train.steps = 3 (--train.steps) is the length of the run. train.epochs = 3 "
      "(--train.epochs) would count if train.steps were 0";
  EXPECT_EQ(resolved("", {"train.steps", "train.epochs"}), Resolved(3, both));
  EXPECT_EQ(resolved("[train]\nsteps = 200\nepochs = 2\n", {"train.steps"}).first, 3);
  EXPECT_EQ(resolved("[train]\nsteps = 200\nepochs = 1\n", {}), Resolved(200, ""));
  EXPECT_NE(resolved("[train]\nsteps = 200\nepochs = 2\n", {}).second.find("(run.toml:2)"),
            std::string::npos);
}

TEST(RunKeys, TokensPerParameterGiveTheStepsUnlessStepsAreSet) {
  const auto shown = [](const char* file,
                        const std::vector<std::pair<const char*, const char*>>& typed) {
    RunConfig config;
    const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config);
    keys->load_toml(file, "run.toml");
    for (const auto& [key, value] : typed) keys->set(key, value, formatted("--{}", key));
    finish_run_keys(config, *keys);
    EXPECT_TRUE(keys->problems().empty()) << file;
    show_token_rule(config, *keys);
    return std::pair(config.train.steps, keys->origin("train.steps"));
  };
  using Shown = std::pair<std::int64_t, std::string>;
  const std::string rule =
      "train.tokens_per_param x parameters / (train.global_batch x train.seq_len)";
  RunConfig shape;
  shape.model = model::model_preset("tiny");
  model::resolve(shape.model, 500);
  const std::int64_t steps = 20 * shape.model.num_parameters() / (8 * 64);
  ASSERT_GT(steps, 100);
  const std::string file =
      "[model]\npreset = \"tiny\"\nvocab_size = 500\n[train]\ntokens_per_param = 20\nglobal_batch "
      "= 8\nseq_len = 64\n";
  EXPECT_EQ(shown(file.c_str(), {}), Shown(steps, rule));
  EXPECT_EQ(shown(file.c_str(), {{"train.tokens_per_param", "1e-9"}}), Shown(1, rule));
  EXPECT_EQ(shown(file.c_str(), {{"train.global_batch", "0"}}), Shown(0, rule)) << "open";
  EXPECT_EQ(shown(file.c_str(), {{"train.steps", "7"}}), Shown(7, "--train.steps"));
  EXPECT_EQ(shown((file + "steps = 7\n").c_str(), {}), Shown(7, "run.toml:8"));
  EXPECT_EQ(shown((file + "steps = 7\n").c_str(), {{"train.tokens_per_param", "20"}}).first, steps);
  EXPECT_EQ(shown(file.c_str(), {{"train.epochs", "2"}}), Shown(0, "default"));
}

TEST(RunKeys, TokensPerParameterAreNotCombinedWithOtherLengths) {
  const auto problem = [](const std::vector<std::pair<const char*, const char*>>& typed) {
    RunConfig config;
    const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config);
    keys->set("train.tokens_per_param", "20", "--train.tokens_per_param");
    for (const auto& [key, value] : typed) keys->set(key, value, formatted("--{}", key));
    finish_run_keys(config, *keys);
    try {
      keys->finish();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto expect = [&](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), std::string::npos) << text;
  };
  expect(problem({{"train.epochs", "2"}}), "cannot be combined with train.epochs");
  expect(problem({{"train.num_samples", "2"}}), "cannot be combined with train.num_samples");
  expect(problem({{"data.batch_phases", "0:8,5:16"}}), "cannot be combined with data.batch_phases");
  expect(problem({{"train.tokens_per_param", "-1"}}), "must be in [0, 1e9]");
  EXPECT_EQ(problem({}), "");
  EXPECT_EQ(problem({{"train.num_samples", "2"}, {"train.steps", "2"}}), "");
}

TEST(RunKeys, EveryOptimizerHasItsOwnDefaultsAndAResolvedFileLoadsBack) {
  const std::vector<std::pair<const char*, double>> beta2{{"adamw", 0.95}, {"lion", 0.99}};
  for (const auto& [name, expected] : beta2) {
    RunConfig config;
    const auto keys = run_keys(config, {{"optim.name", name}});
    EXPECT_TRUE(keys->problems().empty()) << keys->problems().lines()[0];
    EXPECT_EQ(optim_key<double>(config.optim, "beta2"), expected);
    EXPECT_EQ(keys->origin("optim.beta2"), "default");

    RunConfig again;
    const std::unique_ptr<config::ConfigSet> file = make_run_keys(again);
    file->load_toml(keys->to_toml(), "config.toml");
    finish_run_keys(again, *file);
    EXPECT_TRUE(file->problems().empty()) << file->problems().lines()[0];
    EXPECT_EQ(file->to_toml(), keys->to_toml());
    EXPECT_EQ(optim_key<double>(again.optim, "beta2"), expected);
  }
  RunConfig config;
  run_keys(config, {{"optim.name", "lion"}, {"optim.beta2", "0.5"}});
  EXPECT_EQ(optim_key<double>(config.optim, "beta2"), 0.5) << "given by hand";
}

TEST(RunKeys, AKeyThatTheOptimizerLacksIsRefusedOnlyWhenGiven) {
  RunConfig config;
  const auto keys = run_keys(config, {{"optim.name", "sgd"}, {"optim.eps", "1e-8"}});
  ASSERT_EQ(keys->problems().lines().size(), 1U);
  EXPECT_EQ(keys->problems().lines()[0],
            "optim.eps = 1e-08, is not a key of sgd, which has weight_decay, momentum, nesterov "
            "(--optim.eps)");

  RunConfig adamw;
  const auto file = run_keys(adamw, {});
  for (const char* key : {"momentum", "nesterov"})
    EXPECT_EQ(file->to_toml().find(key), std::string::npos) << "as before there was sgd";
  const std::string keys_in_order = file->to_toml();
  EXPECT_LT(keys_in_order.find("eps ="), keys_in_order.find("clip_norm ="));
}

TEST(ResumedRun, KeysOfExpertsAreNoPartOfARunWithout) {
  RunConfig config;
  const auto keys = run_keys(config, {{"model.preset", "tiny"}});
  for (const Field& field : fields_of("model", config.model.moe))
    EXPECT_EQ(value_of_older_versions(field.key), keys->value(field.key)) << field.key;
  const std::string identity = run_identity(*keys, "data");

  keys->set("model.num_experts", "4", "--model.num_experts");

  EXPECT_NE(run_identity(*keys, "data"), identity);
  RunValues values;
  values.config = config_texts(*keys);
  std::erase_if(values.config,
                [](const auto& value) { return value.first.ends_with("num_experts"); });
  EXPECT_THROW(check_same_run(values, *keys, "old"), Error) << "weights of a dense model";
}

TEST(ResumedRun, ACheckpointWithoutTheActivationIsSilu) {
  RunConfig config;
  const auto keys = run_keys(config, {{"model.preset", "tiny"}});
  RunValues values;
  values.config = config_texts(*keys);
  checkpoint::put_model_values(config.model, values.model);
  for (RunValues::Texts* texts : {&values.config, &values.model})
    std::erase_if(*texts, [](const auto& value) { return value.first.ends_with("activation"); });
  EXPECT_NO_THROW(check_same_run(values, *keys, "old"));
  const std::string identity = run_identity(*keys, "data");

  keys->set("model.activation", "relu2", "--model.activation");

  EXPECT_NE(run_identity(*keys, "data"), identity);
  for (const auto& check :
       std::vector<std::function<void()>>{[&] { check_same_run(values, *keys, "old"); },
                                          [&] {
                                            RunStart start;
                                            start.values = values;
                                            check_same_model(start, config.model, *keys);
                                          }}) {
    try {
      check();
      ADD_FAILURE() << "weights of silu were taken for relu2";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("model.activation = relu2 (--model.activation)"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(RunRequest, OnlyRunTaskCanChangeTheConfiguration) {
  static_assert(std::is_const_v<std::remove_reference_t<decltype(RunRequest::config)>>);
  static_assert(std::is_const_v<std::remove_reference_t<decltype(RunRequest::keys)>>);
}

TEST(WeightsStart, TheRoutersLossMayBeLeftOutButItsBiasIsAWeight) {
  RunConfig before;
  const auto keys_before = run_keys(before, {{"model.num_experts", "4"}});
  RunStart start;
  checkpoint::put_model_values(before.model, start.values.model);
  const auto starts_with = [&](const char* balance) {
    RunConfig config;
    const auto keys =
        run_keys(config, {{"model.num_experts", "4"}, {"model.router_balance", balance}});
    check_same_model(start, config.model, *keys);
  };
  EXPECT_NO_THROW(starts_with("none"));
  EXPECT_THROW(starts_with("bias"), Error);
}

TEST(WeightsStart, OnlyATableOfPositionsFixesTheLongestText) {
  const auto longer_start = [](const char* position) {
    RunConfig before;
    const auto keys_before =
        run_keys(before, {{"model.position", position}, {"model.max_seq_len", "512"}});
    RunStart start;
    checkpoint::put_model_values(before.model, start.values.model);
    RunConfig config;
    const auto keys =
        run_keys(config, {{"model.position", position}, {"model.max_seq_len", "1024"}});
    check_same_model(start, config.model, *keys);
  };
  EXPECT_NO_THROW(longer_start("rope"));
  EXPECT_THROW(longer_start("learned"), Error);
}

/// The start of a new run from a checkpoint of step 5.
class BranchTest : public Scratch {
 protected:
  /// Writes a checkpoint of a run with these keys.
  void save(const std::vector<std::pair<const char*, const char*>>& given,
            const std::string& head = "") {
    RunConfig config;
    RunValues values;
    values.config = config_texts(*run_keys(config, given));
    values.task = "pretrain";
    values.step = 5;
    values.update = 5;
    if (!head.empty()) values.model[checkpoint::kHeadValue] = head;
    const checkpoint::StateDict state{{}, values.to_values(), {}};
    std::filesystem::remove_all(at("checkpoints"));
    place_ = checkpoint::save_checkpoint(at("checkpoints"), 5, state, world_, {"run", true});
  }

  /// Starts a run of the task `name` from the checkpoint. Returns the problems of its keys.
  std::string start(const std::vector<std::pair<const char*, const char*>>& given,
                    const char* name = "pretrain") {
    const auto row = std::ranges::find(task_rows(), name, &TaskRow::name);
    task_ = row->make();
    keys_.reset();  // refers to the configuration
    config_ = std::make_unique<RunConfig>();
    keys_ = make_run_keys(*config_, task_->section());
    keys_->set("checkpoint.resume", place_.string(), "--resume");
    for (const auto& [key, value] : given) keys_->set(key, value, formatted("--{}", key));
    const RunStart begun = read_start(*config_, *keys_, job::RunDirectory{at("branch")}, world_);
    finish_task_keys(*task_, name, *config_, *keys_, begun);
    return joined(keys_->problems().lines(), "\n");
  }

  comm::SelfCommunicator world_;
  std::filesystem::path place_;
  std::unique_ptr<Task> task_;
  std::unique_ptr<RunConfig> config_;
  std::unique_ptr<config::ConfigSet> keys_;
};

TEST_F(BranchTest, AnotherScheduleDropsTheKeysOfTheEarlierOne) {
  save({{"optim.schedule", "wsd"},
        {"optim.decay_steps", "7"},
        {"optim.decay_shape", "sqrt"},
        {"optim.warmup_steps", "3"},
        {"optim.lr", "0.5"}});
  EXPECT_EQ(start({{"optim.schedule", "cosine"}}), "");
  EXPECT_EQ(config_->optim.decay_steps, optim::kTenthOfSteps);
  EXPECT_EQ(config_->optim.warmup_steps, 3);
  EXPECT_EQ(config_->optim.lr, 0.5);
  EXPECT_EQ(start({{"optim.schedule", "piecewise"}, {"optim.points", "0:0,10:0.25"}}), "");
  EXPECT_EQ(config_->optim.warmup_steps, 0);
  EXPECT_EQ(config_->optim.lr, 0.25);
  EXPECT_EQ(start({{"optim.schedule", "wsd"}}), "");
  EXPECT_EQ(config_->optim.decay_steps, 7) << "the same schedule keeps its keys";
  EXPECT_EQ(config_->optim.decay_shape, "sqrt");
  EXPECT_EQ(start({}), "");
  EXPECT_EQ(config_->optim.decay_steps, 7);

  save({{"optim.schedule", "piecewise"}, {"optim.points", "0:0,10:0.25"}});
  EXPECT_EQ(start({{"optim.schedule", "constant"}}), "");
  EXPECT_EQ(config_->optim.points, "");
  EXPECT_EQ(config_->optim.lr, 0.25);
}

TEST_F(BranchTest, ARewardModelStartsOnlyItsOwnTask) {
  save({}, "reward");
  for (const char* name : {"pretrain", "sft", "dpo", "kto"}) {
    try {
      (void)start({}, name);
      ADD_FAILURE() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_TRUE(
          std::string_view(error.what()).starts_with(cat(place_.string(), " is a reward model")))
          << error.what();
      EXPECT_NE(std::string_view(error.what()).find("trireme eval --reward"), std::string::npos);
    }
  }
  EXPECT_NO_THROW((void)start({}, "reward"));
}

TEST(RunKeys, AMarginOfAnotherLossIsNamed) {
  const auto warnings = [](const char* loss, const char* gamma) {
    const auto row = std::ranges::find(task_rows(), "dpo", &TaskRow::name);
    const std::unique_ptr<Task> task = row->make();
    RunConfig config;
    const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config, task->section());
    keys->set("dpo.loss", loss, "--dpo.loss");
    keys->set("dpo.gamma", gamma, "--dpo.gamma");
    task->choose_defaults(*keys);
    return joined(keys->warnings(), "\n");
  };
  EXPECT_EQ(warnings("sigmoid", "0.5"),
            "dpo.gamma = 0.5 has no effect: only dpo.loss = simpo uses it, and this run has "
            "dpo.loss = sigmoid");
  EXPECT_EQ(warnings("orpo", "1"), "");
  EXPECT_EQ(warnings("simpo", "0.5"), "");
}

TEST(RunLength, TheLogShowsTheTokensOfEveryPhase) {
  const data::BatchPhases phases(std::string("0:4,2:8,5:16"));
  EXPECT_EQ(tokens_per_step(phases, 0, 6, 64),
            "256 tokens per step, 512 after step 2, 1.0k after step 5");
  EXPECT_EQ(tokens_per_step(phases, 2, 5, 64), "512 tokens per step");
  EXPECT_EQ(tokens_per_step(data::BatchPhases(8), 0, 6, 64), "512 tokens per step");
}

}  // namespace
}  // namespace trireme::train
