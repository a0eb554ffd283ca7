#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>

#include "core/error.hpp"
#include "train/rl/rollout.hpp"
#include "train/rl/rollout_progress.hpp"
#include "train/rl/token_advantages.hpp"
#include "train/start/run_keys.hpp"
#include "train/state/continuation.hpp"
#include "train/state/resume.hpp"
#include "train/state/run_values.hpp"
#include "train/task/task.hpp"
#include "unit/data/small_set.hpp"

namespace trireme::train {
namespace {

std::unique_ptr<Task> make_rl_task() {
  for (const TaskRow& row : task_rows())
    if (row.name == "rl") return row.make();
  return nullptr;
}

/// Returns the problems of a run of `trireme rl` with these keys.
std::string problems_of(const std::vector<std::pair<const char*, const char*>>& given,
                        std::string* rewards = nullptr) {
  const std::unique_ptr<Task> task = make_rl_task();
  RunConfig config;
  const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config, task->section());
  for (const auto& [key, value] : given) keys->set(key, value, cat("--", key));
  task->choose_defaults(*keys);
  task->check(keys->problems());
  if (rewards != nullptr) *rewards = keys->value("rl.rewards");
  std::string text;
  for (const std::string& line : keys->problems().lines()) text += line + "\n";
  return text;
}

TEST(RlKeys, TheDefaultRewardsNeedAModelOnlyIfOneIsNamed) {
  std::string rewards;

  EXPECT_EQ(problems_of({}, &rewards), "");
  EXPECT_EQ(rewards, "length=1,repetition=1");
  EXPECT_EQ(problems_of({{"rl.reward_model", "runs/reward"}}, &rewards), "");
  EXPECT_EQ(rewards, "length=1,repetition=1,model=1");
  EXPECT_EQ(problems_of({{"rl.rewards", "gt=1"}}, &rewards), "");
  EXPECT_EQ(rewards, "gt=1");
}

TEST(RlKeys, ARewardModelAndItsTermNeedEachOther) {
  EXPECT_NE(problems_of({{"rl.rewards", "model=1"}}).find("rl.reward_model"), std::string::npos);
  EXPECT_NE(problems_of({{"rl.rewards", "length=1"}, {"rl.reward_model", "runs/reward"}})
                .find("must be empty, because rl.rewards has no term model"),
            std::string::npos);
}

TEST(RlKeys, ARewardProgramWithoutItsTermIsRefused) {
  EXPECT_NE(problems_of({{"rl.reward_command", "score"}})
                .find("rl.rewards has no term command. Give --rl.rewards "
                      "length=1,repetition=1,command=1"),
            std::string::npos);
  EXPECT_EQ(problems_of({{"rl.rewards", "gt=1,command=2"}, {"rl.reward_command", "score"}}), "");
}

TEST(RlKeys, GroupsOfOneAnswerHaveNoGroupBaseline) {
  for (const char* objective : {"grpo", "cispo", "reinforce"})
    EXPECT_NE(problems_of({{"rl.objective", objective}, {"rl.group", "1"}}).find("rl.group = 1"),
              std::string::npos)
        << objective;
  for (const char* objective : {"spo", "ppo"}) {
    EXPECT_EQ(problems_of({{"rl.objective", objective}, {"rl.group", "1"}}), "") << objective;
    EXPECT_NE(problems_of({{"rl.objective", objective}, {"rl.advantage", "batch"}})
                  .find("rl.advantage = batch"),
              std::string::npos)
        << objective;
  }
}

TEST(RlKeys, EachKeyOfPpoHasLimits) {
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, const char*>>{{"ppo.critic_lr", "-1"},
                                                        {"ppo.gamma", "1.1"},
                                                        {"ppo.lam", "-0.1"},
                                                        {"ppo.value_clip", "0"},
                                                        {"ppo.value_weight", "-1"},
                                                        {"ppo.early_stop_kl", "-0.5"},
                                                        {"rl.objective", "pg"},
                                                        {"rl.mini_batch", "-1"}})
    EXPECT_NE(problems_of({{key, value}}).find(cat(key, " = ")), std::string::npos) << key;
}

TEST(RlKeys, AKeyOfPpoWithAnotherObjectiveGivesAWarning) {
  for (const auto& [objective, expected] :
       std::vector<std::pair<const char*, std::vector<std::string>>>{
           {"ppo", {}},
           {"grpo",
            {"ppo.gamma = 0.9 has no effect: only rl.objective = ppo uses it, and this run has "
             "grpo"}}}) {
    const std::unique_ptr<Task> task = make_rl_task();
    RunConfig config;
    const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config, task->section());
    keys->set("rl.objective", objective, "--rl.objective");
    keys->set("ppo.gamma", "0.9", "--ppo.gamma");
    keys->set("ppo.lam", "0.9", "run.toml:3");
    task->choose_defaults(*keys);
    EXPECT_EQ(keys->warnings(), expected) << objective;
  }
}

TEST(RlKeys, GraphsOfDecodingStepsHaveTheValuesOfOtherCommands) {
  for (const char* mode : {"auto", "true", "false"})
    EXPECT_EQ(problems_of({{"rl.cuda_graph", mode}}), "") << mode;
  EXPECT_NE(problems_of({{"rl.cuda_graph", "yes"}}).find("rl.cuda_graph = yes"), std::string::npos);
}

TEST(RlKeys, AResumedRunMayTurnGraphsOffAndContinuesWithinRounding) {
  const std::unique_ptr<Task> task = make_rl_task();
  RunConfig config;
  const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config, task->section());
  const Fingerprint fingerprint{{"binary", "aa"}};
  RunValues values;
  values.config = config_texts(*keys);
  values.fingerprint = fingerprint;
  const auto describe = [&] {
    return describe_continuation({values, config, *keys, fingerprint, "", 0});
  };
  EXPECT_TRUE(describe().starts_with("exact: ")) << describe();

  keys->set("rl.cuda_graph", "false", "--rl.cuda_graph");

  EXPECT_EQ(describe(),
            "the state is exact, losses continue within rounding: changed rl.cuda_graph false (was "
            "auto)");
}

TEST(RlKeys, ACorrectionOfARatioToTheGenerationCountsTwice) {
  RlConfig config;
  EXPECT_FALSE(config.corrects_twice());
  config.correction = "token_truncate";
  EXPECT_TRUE(config.corrects_twice());
  config.loss.objective = "reinforce";
  EXPECT_FALSE(config.corrects_twice()) << "no ratio";
  config.loss.objective = "ppo";
  config.old = "recompute";
  EXPECT_FALSE(config.corrects_twice());
}

TEST(RlKeys, TheWarningNamesOnlyTheKeysThatCut) {
  RlConfig config;
  EXPECT_EQ(config.cuts(), "");
  config.top_k = 50;
  EXPECT_EQ(config.cuts(), "rl.top_k = 50");
  config.top_p = 0.5;
  EXPECT_EQ(config.cuts(), "rl.top_p = 0.5, rl.top_k = 50");
}

TEST(RlTask, AGlobalBatchGivesAStepForEachMiniBatchAndPass) {
  const std::unique_ptr<Task> task = make_rl_task();
  RunConfig config;
  config.train.global_batch = 12;
  const std::unique_ptr<config::ConfigSet> keys = make_run_keys(config, task->section());

  EXPECT_EQ(task->steps_per_batch(config), 1);
  keys->set("rl.mini_batch", "4", "");
  keys->set("rl.updates", "2", "");

  EXPECT_EQ(task->steps_per_batch(config), 6);
}

Rollout answer_with_gap(double gap) {
  Rollout answer;
  answer.ids = {1, 2};
  answer.mask = {true, true};
  answer.rollout_logprobs = {-1, -1};
  answer.current_logprobs = {-1, -1 + gap};
  return answer;
}

TEST(RlTask, AGapIsANumericError) {
  RlConfig config;
  config.max_gap = 0.1;
  std::vector<Rollout> answers{answer_with_gap(0.2)};

  try {
    set_old_logprobs(config, answers);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.kind()), 6);
  }
  answers = {answer_with_gap(0.05)};
  EXPECT_NO_THROW(set_old_logprobs(config, answers));
}

TEST(Ppo, AdvantagesSkipTokensWithoutATarget) {
  RlConfig config;
  config.ppo.gamma = 0.5;
  config.ppo.lam = 0.25;
  Rollout answer;
  answer.ids = {1, 2, 3, 4};
  answer.mask = {true, false, true, false};
  answer.values = {2, 100, 3, 100};
  answer.reward = 1;
  std::vector<Rollout> answers{answer};

  estimate_advantages(config, answers);

  const double last = 1 - 3.0;
  const double first = 0.5 * 3 - 2 + 0.5 * 0.25 * last;
  EXPECT_EQ(answers[0].advantages, (std::vector<double>{first, 0, last, 0}));
  EXPECT_EQ(answers[0].returns, (std::vector<double>{first + 2, 0, 1, 0}));
}

TEST(Ppo, WhiteningLeavesOutMaskedAnswers) {
  RlConfig config;
  config.truncated = "mask";
  Rollout answer;
  answer.ids = {1, 2};
  answer.mask = {true, true};
  answer.advantages = {1, 3};
  Rollout masked = answer;
  masked.truncated = true;
  masked.advantages = {100, 100};
  std::vector<Rollout> answers{answer, masked};

  const TokenSum sum = sum_advantages(config, answers, 0, 1);
  const TokenSum squares = sum_advantages(config, answers, sum.sum / sum.count, 2);
  whiten(answers, sum.sum / sum.count, squares.sum / squares.count);

  EXPECT_EQ(sum.count, 2);
  EXPECT_NEAR(answers[0].advantages[0], -1, 1e-7);
  EXPECT_NEAR(answers[0].advantages[1], 1, 1e-7);
  EXPECT_NEAR(answers[0].advantage, 0, 1e-15);
}

TEST(Spo, AdvantagesAreLimitedDifferencesFromTheBaseline) {
  RlConfig config;
  config.loss.objective = "spo";
  config.group = 1;
  std::vector<Rollout> answers(3);
  answers[0].reward = 1;
  answers[1].reward = 7;
  answers[2].reward = -7;
  const std::array<double, 3> rewards{1, 7, -7};

  const AdvantageTotals totals = set_advantages(config, rewards, 0.5, answers);

  EXPECT_EQ(answers[0].advantage, 0.5);
  EXPECT_EQ(answers[1].advantage, 5);
  EXPECT_EQ(answers[2].advantage, -5);
  EXPECT_EQ(totals.zero_std_groups, 0) << "a group of one answer has no spread";
  set_advantages(config, rewards, std::nullopt, answers);
  EXPECT_EQ(answers[0].advantage, 0.5) << "without a baseline, advantages stay";
}

TEST(Spo, TheTrackerFollowsTheFormulaAndItsStateIsExact) {
  ValueTracker tracker;
  EXPECT_EQ(tracker.baseline(), 0);

  EXPECT_EQ(tracker.add(1.5, -2), 0.9);
  EXPECT_NEAR(tracker.baseline(), (0.9 + 0.75) / 2.8 * 6 - 3, 1e-15);
  EXPECT_NEAR(tracker.add(-3, -2.03), std::exp2(-0.5), 1e-12);
  EXPECT_EQ(tracker.add(0.1, -9), 0.5) << "a large change";
  EXPECT_EQ(tracker.add(0.3, -9), 0.96) << "no change";

  RunValues values;
  tracker.put(values.samples);
  ValueTracker other = ValueTracker::read(RunValues::from_values(values.to_values()).samples);
  EXPECT_EQ(other.baseline(), tracker.baseline());
  EXPECT_EQ(other.add(0.7, -9.01), tracker.add(0.7, -9.01));
  EXPECT_EQ(other.baseline(), tracker.baseline());
}

TEST(RolloutProgress, ACancelledFirstUpdateDoesNotCountItsRollout) {
  RolloutProgress progress;
  progress.begin(1);
  progress.tracker().add(1, -1);
  const double before = progress.tracker().baseline();
  progress.begin(3);
  progress.tracker().add(2, -1);
  const double after = progress.tracker().baseline();

  for (const std::int64_t step : {2, 3}) {
    std::map<std::string, std::string> samples;
    progress.put(step, samples);
    RolloutProgress resumed;
    resumed.restore(step, samples);
    EXPECT_EQ(resumed.part(step + 1), step == 2 ? 2 : 1);
    EXPECT_EQ(resumed.tracker().baseline(), step == 2 ? before : after);
  }
}

TEST(RolloutProgress, ACheckpointAtTheEndOfARolloutNeedsNoFile) {
  RolloutProgress progress;
  EXPECT_EQ(progress.unfinished(0, 4), 0);
  progress.begin(5);
  progress.begin(7);  // the rollout of step 5 ended early

  const std::vector<std::pair<std::int64_t, std::int64_t>> expected{
      {5, 5}, {6, 5}, {7, 7}, {9, 7}, {10, 0}};
  for (const auto& [step, first] : expected) EXPECT_EQ(progress.unfinished(step, 4), first) << step;
  EXPECT_EQ(progress.unfinished(7, 1), 0);
}

TEST(RolloutFile, AnInvalidReplayIsAnErrorThatNamesItsLine) {
  const testing::TestDirectory directory("replay");
  const std::filesystem::path path = directory.path() / "answers.jsonl";
  const std::string good =
      R"({"prompt_ids":[1,2],"completion_ids":[3,4],"mask":[1,1],"rollout_logprobs":[-1,-2],"reward":1})";
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string line = good;
    return line.replace(line.find(from), from.size(), to);
  };
  const auto error_of = [&](const std::string& second) {
    std::ofstream(path) << good << "\n" << second;
    try {
      read_replay(
          path,
          {.step = 1, .answers = 2, .count = 2, .group = 2, .vocab_size = 9, .max_tokens = 4});
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      return std::string(error.what());
    }
    return std::string();
  };

  EXPECT_EQ(error_of(good), "");
  EXPECT_EQ(error_of(with("-2", "1e-7")), "") << "rounding";
  for (const auto& [line, words] : std::vector<std::pair<std::string, std::string>>{
           {good.substr(0, 70), ":2:1:"},
           {"", "has 1 lines, but step 1 needs 2 lines"},
           {with("[3,4]", "[3,9]"), ":2: completion_ids contains 9"},
           {with("[3,4]", "[]"), ":2: completion_ids is empty. It must have at least one"},
           {with("[3,4]", "3"), ":2: completion_ids is not a list of token ids"},
           {with("[1,2]", "[1,5]"), ":2: prompt_ids differ from the line before"},
           {with("[1,1]", "[1,2]"), ":2: mask contains 2"},
           {with("[1,1]", "[1]"), ":2: mask must be a list of 2 numbers"},
           {with("-2", "\"x\""), ":2: rollout_logprobs contains \"x\""},
           {with("-2", "0.5"), ":2: rollout_logprobs contains 0.5. A log-probability is at most 0"},
           {with("rollout_logprobs", "logprobs"), ":2: rollout_logprobs must be"},
           {with("reward", "points"), ":2: key 'reward' is missing"},
           {R"({"prompt_ids":[1,2],"completion_ids":[3,4,5],"mask":[1,1,1],)"
            R"("rollout_logprobs":[-1,-2,-1],"reward":1})",
            ":2: prompt_ids and completion_ids have 5 tokens, but train.seq_len is 4"}})
    EXPECT_NE(error_of(line).find(words), std::string::npos) << error_of(line);
}

TEST(RolloutFile, AReplayGetsTheRewardWithoutTheKlPenalty) {
  const testing::TestDirectory directory("raw_reward");
  RlConfig config;
  config.loss.beta = 0.5;
  std::vector<Rollout> rollouts(1);
  Rollout& one = rollouts[0];
  one.prompt = {1};
  one.ids = {3};
  one.mask = {true};
  one.rollout_logprobs = one.old_logprobs = {-1};
  one.ref_logprobs = {-2};
  one.reward = 4;
  penalize_rewards(config, rollouts);
  const double penalized = 4 - 0.5 * std::exp(-1.0);  // k3 of a difference of -1
  std::ofstream(directory.path() / rollout_file_name(1)) << rollout_line(one);
  const auto reward_of = [&](bool is_saved) {
    return read_replay(directory.path(), {.step = 1,
                                          .is_saved = is_saved,
                                          .answers = 1,
                                          .count = 1,
                                          .group = 1,
                                          .vocab_size = 9,
                                          .max_tokens = 4})
        .front()
        .reward;
  };

  EXPECT_EQ(reward_of(/*is_saved=*/false), 4) << "the other run subtracts a penalty of its own";
  EXPECT_DOUBLE_EQ(reward_of(/*is_saved=*/true), penalized) << "a resumed run";
}

TEST(RolloutFile, OldFilesThatNoCheckpointNeedsAreRemoved) {
  const testing::TestDirectory directory("rollouts");
  for (const std::int64_t step : {1, 4, 5, 9, 12})
    std::ofstream(directory.path() / rollout_file_name(step)) << "x";

  remove_old_rollouts(directory.path(), 9, 2, {0, 1});

  for (const std::int64_t step : {1, 4, 5, 9, 12})
    EXPECT_EQ(std::filesystem::exists(directory.path() / rollout_file_name(step)), step != 4)
        << step;
}

}  // namespace
}  // namespace trireme::train
