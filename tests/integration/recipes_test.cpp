/// Tests recipes of training: schedules and branches, early stop, the EMA of the weights, averages of
/// checkpoints and phases of the batch size.

#include <cmath>
#include <cstring>
#include <filesystem>

#include "checkpoint/load/load.hpp"
#include "core/files/file.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;
using testing::RunMetrics;

class Recipes : public testing::RunProgram {
 protected:
  static void expect_words(const Exit& exit, const std::vector<std::string>& words) {
    for (const std::string& word : words)
      EXPECT_NE(exit.err.find(word), std::string::npos) << "no '" << word << "' in: " << exit.err;
  }

  static Arguments with(Arguments all, const Arguments& more) {
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  static checkpoint::Checkpoint step_of(const std::string& run, int step) {
    return checkpoint::Checkpoint::open(path(run) / "checkpoints" /
                                        checkpoint::step_directory_name(step));
  }

  /// Returns a tensor of a run in fp64.
  static std::vector<double> fp64(const checkpoint::Checkpoint& from, const std::string& name) {
    const std::vector<std::byte> bytes = from.read_logical(name);
    std::vector<double> values(bytes.size() / sizeof(double));
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  }

  /// Returns the validation loss after a step.
  static double valid_loss(const std::string& run, int step) {
    for (const Json& line : metrics(run).lines)
      if (line.contains("eval_step") && line["eval_step"] == step) return line["valid_loss"];
    ADD_FAILURE() << run << " has no validation at step " << step;
    return 0;
  }
};

TEST_F(Recipes, ADecayBranchesFromAStableCheckpoint) {
  const Arguments stable{"--optim.schedule",   "wsd", "--optim.decay_steps",    "0",
                         "--checkpoint.every", "2",   "--checkpoint.keep_last", "0"};
  Arguments four = stable;
  four.insert(four.end(), {"--train.steps", "4"});
  ASSERT_EQ(pretrain("stable", four).code, 0);
  Arguments six = stable;
  six.insert(six.end(), {"--train.steps", "6"});
  ASSERT_EQ(pretrain("stable", six).code, 0);
  const auto branch = [](const std::string& run, const Arguments& more) {
    Arguments all{"pretrain", "--resume", (path("stable") / "checkpoints/step-000000004").string(),
                  "--run", path(run).string()};
    all.insert(all.end(), more.begin(), more.end());
    return trireme(all);
  };

  const Exit decay = branch("decay", {"--train.steps", "6", "--optim.decay_steps", "2",
                                      "--optim.decay_shape", "sqrt", "--optim.min_lr", "0"});
  ASSERT_EQ(decay.code, 0) << decay.err;
  expect_words(decay, {"resumed from", "optim.decay_steps 0 -> 2"});
  const RunMetrics metrics_of = metrics("decay");
  EXPECT_DOUBLE_EQ(metrics_of.steps.at(5).at("lr").get<double>(), 0.003 * (1 - std::sqrt(0.5)));
  EXPECT_EQ(metrics_of.steps.at(6).at("lr").get<double>(), 0);
  EXPECT_EQ(metrics_of.steps.at(5).at("loss"), metrics("stable").steps.at(5).at("loss"))
      << "weights and data continue";
  // An update with the rates of the stable run gives the same weights as the stable run, so the
  // branch has its optimizer state.
  ASSERT_EQ(
      branch("same", {"--train.steps", "6", "--optim.schedule", "piecewise", "--optim.decay_steps",
                      "-1", "--optim.points", "0:0.003", "--optim.warmup_steps", "0"})
          .code,
      0);
  EXPECT_EQ(hash("same"), hash("stable"));
  const Exit late = branch("late", {"--train.steps", "6", "--optim.decay_steps", "4"});
  EXPECT_EQ(late.code, 0) << late.err;
  expect_words(late, {"begins at step 2, before the first step of this start (5)"});
}

TEST_F(Recipes, ARunEndsEarlyWithoutALowerValidationLoss) {
  // The rate is 0 in fp32, so every validation has the same loss.
  const auto run = [](const char* patience, const testing::Start& how) {
    return pretrain(
        "early",
        {"--optim.lr", "1e-300", "--optim.schedule", "constant", "--data.valid_path",
         set().string(), "--data.valid_tokens", "1024", "--train.eval_every", "2",
         "--train.patience", patience, "--checkpoint.every", "2", "--train.steps", "20"},
        how);
  };

  ASSERT_NE(run("2", {.ranks = 2, .fault = "train.step:1:6:kill9"}).code, 0);
  ASSERT_EQ(saved_steps("early").front(), 4);
  const Exit resumed = run("2", {.ranks = 2});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(saved_steps("early").front(), 6) << "the count of the checkpoint continues";
  const std::string words = "early stop: 2 validations without a lower validation loss";
  expect_words(resumed, {"done at step 6/", ", " + words});
  EXPECT_TRUE(status("early").at("reason").get<std::string>().starts_with(words));
  EXPECT_EQ(status("early").at("state"), "done");

  const Exit again = run("2", {});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(saved_steps("early").front(), 6) << "an ended run does not continue";
  const Exit more = run("3", {});
  EXPECT_EQ(more.code, 0) << more.err;
  EXPECT_EQ(saved_steps("early").front(), 8);
}

TEST_F(Recipes, TheEmaOfTheWeightsFollowsItsFormulaOnEveryLayout) {
  const Arguments fp64_run{"--train.precision",      "fp64",
                           "--train.ema_decay",      "0.75",
                           "--train.eval_every",     "2",
                           "--train.eval_ema",       "true",
                           "--data.valid_path",      set().string(),
                           "--data.valid_tokens",    "1024",
                           "--optim.schedule",       "constant",
                           "--checkpoint.every",     "1",
                           "--checkpoint.keep_last", "0",
                           "--train.steps",          "4"};
  const Exit one = pretrain("ema", fp64_run);
  ASSERT_EQ(one.code, 0) << one.err;
  expect_words(one, {"validation loss of the EMA"});

  const std::string name = "model.layers.0.self_attn.q_proj.weight";
  std::vector<double> ema = fp64(step_of("ema", 1), "optim/ema/" + name);
  for (int step = 2; step <= 4; ++step) {
    const std::vector<double> weights = fp64(step_of("ema", step), "param/" + name);
    const std::vector<double> saved = fp64(step_of("ema", step), "optim/ema/" + name);
    ASSERT_EQ(saved.size(), ema.size());
    for (std::size_t i = 0; i < ema.size(); ++i) {
      ema[i] = 0.75 * ema[i] + 0.25 * weights[i];
      ASSERT_NEAR(saved[i], ema[i], 1e-14) << "step " << step;
    }
  }
  // The exchange for a validation leaves no trace in the training.
  ASSERT_EQ(pretrain("plain", with(fp64_run, {"--train.eval_ema", "false"})).code, 0);
  EXPECT_EQ(hash("plain"), hash("ema"));
  EXPECT_GT(std::abs(valid_loss("plain", 4) - valid_loss("ema", 4)), 1e-6);
  const Json rank = Json::parse(read_file(path("ema") / "layout.json"))["per_rank"][0];
  EXPECT_EQ(rank["optimizer_bytes"], rank["optimizer_bytes_formula"]);

  const std::vector<Arguments> layouts{{"--parallel.zero", "3"}, {"--parallel.tp", "2"}};
  for (const Arguments& layout : layouts) {
    const Exit two = pretrain("ema_two", with(fp64_run, layout), {.ranks = 2});
    ASSERT_EQ(two.code, 0) << two.err;
    EXPECT_NEAR(valid_loss("ema_two", 4), valid_loss("ema", 4), 1e-10) << layout[0];
    const std::vector<double> other = fp64(step_of("ema_two", 4), "optim/ema/" + name);
    for (std::size_t i = 0; i < ema.size(); ++i) ASSERT_NEAR(other[i], ema[i], 1e-10) << layout[0];
    std::filesystem::remove_all(path("ema_two"));
  }
}

TEST_F(Recipes, TheEmaResumesBitForBitAndIsEvaluatedAndExported) {
  const Arguments run{"--train.ema_decay", "0.9", "--optim.schedule", "constant"};
  ASSERT_EQ(pretrain("ema_whole", with(run, {"--train.steps", "5"})).code, 0);
  ASSERT_EQ(pretrain("ema_parts", with(run, {"--train.steps", "3"})).code, 0);
  ASSERT_EQ(pretrain("ema_parts", with(run, {"--train.steps", "5"})).code, 0);
  EXPECT_EQ(hash("ema_parts"), hash("ema_whole"));

  const std::string from = path("ema_whole").string();
  const auto loss = [&](const Arguments& more) {
    const Exit exit =
        trireme(with({"eval", "--data", set().string(), "--json", "--checkpoint"}, more));
    EXPECT_EQ(exit.code, 0) << exit.err;
    return exit.code == 0 ? Json::parse(exit.out)["loss"].get<double>() : 0;
  };
  const double averaged = loss({from, "--ema"});
  EXPECT_NE(averaged, loss({from}));
  const std::string exported = path("ema_hf").string();
  ASSERT_EQ(trireme({"export", "--checkpoint", from, "--ema", "--output", exported}).code, 0);
  EXPECT_EQ(loss({exported}), averaged);
  const std::string extracted = path("ema_weights").string();
  ASSERT_EQ(trireme({"checkpoint", "average", from, "--ema", "-o", extracted}).code, 0);
  EXPECT_EQ(loss({extracted}), averaged);

  ASSERT_EQ(pretrain("no_ema", {"--train.steps", "2"}).code, 0);
  const std::string without = path("no_ema").string();
  const Exit refused =
      trireme({"export", "--checkpoint", without, "--ema", "--output", path("nothing").string()});
  EXPECT_EQ(refused.code, 2);
  expect_words(refused, {"has no EMA of the weights"});
  // A branch may begin an EMA; its first value is the weights of the checkpoint.
  const Exit branch = trireme({"pretrain", "--resume", without, "--run", path("branch").string(),
                               "--train.steps", "3", "--train.ema_decay", "0.5"});
  EXPECT_EQ(branch.code, 0) << branch.err;
}

TEST_F(Recipes, AnAverageOfCheckpointsIsAModel) {
  ASSERT_EQ(pretrain("points", {"--train.steps", "4", "--checkpoint.every", "2"}).code, 0);
  const std::string points = path("points/checkpoints").string();
  const std::string mean = path("mean").string();

  const Exit averaged = trireme({"checkpoint", "average", points + "/step-000000002",
                                 points + "/step-000000004", "--weights", "0.25,0.75", "-o", mean});

  ASSERT_EQ(averaged.code, 0) << averaged.err;
  EXPECT_EQ(trireme({"eval", "--checkpoint", mean, "--data", set().string()}).code, 0);
  EXPECT_EQ(trireme({"export", "--checkpoint", mean, "--output", path("mean_hf").string()}).code,
            0);
  const Exit tuned = trireme({"pretrain", "--init", mean, "--data", set().string(), "--run",
                              path("tuned").string(), "--train.steps", "1", "--train.global_batch",
                              "4", "--train.device", "cpu"});
  EXPECT_EQ(tuned.code, 0) << tuned.err;
  const Exit again = trireme({"checkpoint", "average", points + "/step-000000002",
                              points + "/step-000000004", "-o", mean});
  EXPECT_EQ(again.code, 2);
  expect_words(again, {"is not empty"});
}

TEST_F(Recipes, TheBatchSizeChangesByPhases) {
  const Arguments phases{"--data.batch_phases", "0:12,3:24,5:4", "--optim.schedule", "constant"};
  ASSERT_EQ(pretrain("phases", with(phases, {"--train.steps", "6"})).code, 0);
  const auto steps = metrics("phases").steps;
  for (const auto& [step, tokens] : std::map<int, int>{{3, 36}, {4, 60}, {5, 84}, {6, 88}})
    EXPECT_EQ(steps.at(step).at("tokens"), tokens * 32) << step;

  for (const char* stop : {"2", "3", "5"}) {
    std::filesystem::remove_all(path("phases_parts"));
    ASSERT_EQ(pretrain("phases_parts", with(phases, {"--train.steps", stop})).code, 0);
    ASSERT_EQ(pretrain("phases_parts", with(phases, {"--train.steps", "6"})).code, 0);
    EXPECT_EQ(hash("phases_parts"), hash("phases")) << "resumed at " << stop;
  }
  ASSERT_EQ(pretrain("phases_two", with(phases, {"--train.steps", "6"}), {.ranks = 2}).code, 0);
  EXPECT_NEAR(metrics("phases_two").losses().back(), metrics("phases").losses().back(), 1e-4);

  const Exit uneven = pretrain("uneven", {"--data.batch_phases", "0:12,3:25"});
  EXPECT_EQ(uneven.code, 2);
  expect_words(uneven, {"has 25 samples from step 3 on, must be a multiple of 2"});
  const Exit other = pretrain("other", {"--data.batch_phases", "0:24"});
  EXPECT_EQ(other.code, 2);
  expect_words(other, {"train.global_batch = 12", "must be 24, the first size"});
  const Exit changed = pretrain("phases", {"--data.batch_phases", "0:12", "--train.steps", "7"});
  EXPECT_EQ(changed.code, 2);
  expect_words(changed, {"data.batch_phases = 0:12", "the checkpoint has 0:12,3:24,5:4"});
}

/// The windows of the model apply in validation, and in training from the last phase on.
TEST_F(Recipes, TheAttentionWindowChangesByPhases) {
  const Arguments windows{"--train.window_schedule", "0:4,3:8,5:0", "--optim.schedule", "constant"};
  ASSERT_EQ(pretrain("windows", with(windows, {"--train.steps", "6"})).code, 0);
  const Arguments narrow{"--model.sliding_window", "4", "--optim.schedule", "constant"};
  ASSERT_EQ(pretrain("narrow", with(narrow, {"--train.steps", "6"})).code, 0);
  const std::vector<double> losses = metrics("windows").losses();
  const std::vector<double> of_narrow = metrics("narrow").losses();
  ASSERT_EQ(losses.size(), 6U);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(losses[i], of_narrow[i]) << i;
  EXPECT_NE(losses[3], of_narrow[3]);

  for (const char* stop : {"2", "3", "5"}) {
    std::filesystem::remove_all(path("windows_parts"));
    ASSERT_EQ(pretrain("windows_parts", with(windows, {"--train.steps", stop})).code, 0);
    ASSERT_EQ(pretrain("windows_parts", with(windows, {"--train.steps", "6"})).code, 0);
    EXPECT_EQ(hash("windows_parts"), hash("windows")) << "resumed at " << stop;
  }

  for (const auto& [schedule, words] : std::map<const char*, const char*>{
           {"0:4", "ends with a window of 4. The last window must be 0"},
           {"1:4,3:0", "begins at step 1"},
           {"0:-1,3:0", "has the window -1 at step 0"},
           {"0:64,3:0", "must be at most train.seq_len = 32"}}) {
    const Exit wrong = pretrain("wrong", {"--train.window_schedule", schedule});
    EXPECT_EQ(wrong.code, 2) << schedule;
    expect_words(wrong, {"train.window_schedule", words});
  }
  const Exit changed =
      pretrain("windows", {"--train.window_schedule", "0:8,5:0", "--train.steps", "7"});
  EXPECT_EQ(changed.code, 2);
  expect_words(changed, {"train.window_schedule", "the checkpoint has 0:4,3:8,5:0"});
  const Exit dpo = trireme({"dpo", "--init", path("windows").string(), "--data", set().string(),
                            "--run", path("dpo").string(), "--train.window_schedule", "0:4,3:0"});
  EXPECT_EQ(dpo.code, 2);
  expect_words(dpo, {"only pretrain and sft can limit the windows"});
}

}  // namespace
}  // namespace trireme
