/// Tests how a run starts: from its own directory alone, from imported weights, and from the state
/// of another run.

#include <filesystem>
#include <fstream>

#include "core/files/file.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;

class Begin : public testing::RunProgram {
 protected:
  static void expect_words(const Exit& exit, const std::vector<std::string>& words) {
    for (const std::string& word : words)
      EXPECT_NE(exit.err.find(word), std::string::npos) << "no '" << word << "' in: " << exit.err;
  }
};

TEST_F(Begin, ARunWithRelativePathsResumesFromAnyDirectory) {
  ASSERT_EQ(pretrain("source", {"--train.steps", "1"}).code, 0);
  const auto in = [](const std::filesystem::path& folder, const Arguments& more) {
    Arguments all{"sh",
                  "-c",
                  "cd \"$0\" && exec \"$@\"",
                  folder.string(),
                  TRIREME_PROGRAM,
                  "pretrain",
                  "--train.device",
                  "cpu"};
    all.insert(all.end(), more.begin(), more.end());
    return testing::Process(all, {{"OMP_NUM_THREADS", "1"}}, path("relative.log")).wait(kLimit_s);
  };

  const Exit first =
      in(path("."), {"--data", "set", "--data.valid_path", "./set", "--init", "source", "--run",
                     "relative", "--train.steps", "2", "--train.eval_every", "1"});
  EXPECT_EQ(first.code, 0) << first.err;
  // The run is killed before its first checkpoint, so the next start needs the model of --init.
  std::filesystem::remove_all(path("relative/checkpoints"));
  std::ofstream(path("relative/status.json"))
      << R"({"state": "running", "exit_code": 0, "step": 0, "committed": -1})";
  const Exit anew = in("/", {"--run", path("relative").string()});
  EXPECT_EQ(anew.code, 0) << anew.err;
  const Exit second = in("/", {"--run", path("relative").string(), "--train.steps", "3"});
  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(saved_steps("relative").front(), 3);
}

TEST_F(Begin, ARunResumesWithItsConfigurationAndReportsTheEffectOfAnotherEnd) {
  ASSERT_EQ(pretrain("alone", {"--train.steps", "4", "--checkpoint.every", "2"}).code, 0);
  const std::string run = path("alone").string();
  const std::string config = read_file(path("alone") / "config.toml");
  const std::string status_text = read_file(path("alone") / "status.json");
  const std::string three = hash("alone");

  const Exit again = trireme({"pretrain", "--run", run});
  EXPECT_EQ(again.code, 0) << again.err;
  expect_words(again,
               {"resumed from", "at step 4; exact: losses and weights continue bit for bit"});
  EXPECT_EQ(read_file(path("alone") / "config.toml"), config);
  EXPECT_EQ(hash("alone"), three);

  const std::string lines = read_file(path("alone") / "metrics.jsonl");
  const Exit less = trireme({"pretrain", "--run", run, "--train.steps", "3"});
  EXPECT_EQ(less.code, 2) << less.err;
  expect_words(less, {"train.steps = 3", "step-000000004 has done 4"});
  EXPECT_EQ(read_file(path("alone") / "config.toml"), config);
  EXPECT_EQ(read_file(path("alone") / "metrics.jsonl"), lines);
  EXPECT_EQ(Json::parse(read_file(path("alone") / "status.json")), Json::parse(status_text));

  const Exit more = trireme({"pretrain", "--run", run, "--train.steps", "8"});
  EXPECT_EQ(more.code, 0) << more.err;
  expect_words(more, {"from step 5 on the learning rate differs", "train.steps = 8 (was 4)"});
  EXPECT_EQ(more.err.find("bit for bit"), std::string::npos) << more.err;
  EXPECT_EQ(metrics("alone").steps.size(), 8U);

  // The checkpoint has the configuration keys that the run has lost.
  std::ofstream(path("alone") / "config.toml") << "[train\n";
  const Exit damaged = trireme({"pretrain", "--run", run, "--train.steps", "9"});
  EXPECT_EQ(damaged.code, 0) << damaged.err;
  expect_words(damaged, {"config.toml of the run is ignored"});

  const Exit refused = trireme({"pretrain", "--run", run, "--optim.lr", "1e-3"});
  EXPECT_EQ(refused.code, 2);
  expect_words(refused, {"optim.lr = 0.001 (--optim.lr), the checkpoint has 0.003"});
}

TEST_F(Begin, ARunFromImportedWeightsResumes) {
  ASSERT_EQ(pretrain("source", {"--train.steps", "2"}).code, 0);
  const std::string exported = path("exported").string();
  const std::string weights = path("weights").string();
  ASSERT_EQ(trireme({"export", "--checkpoint", path("source").string(), "--output", exported}).code,
            0);
  ASSERT_EQ(trireme({"import", "--hf", exported, "--output", weights}).code, 0);
  const Arguments arguments{"pretrain",
                            "--resume",
                            weights,
                            "--data",
                            set().string(),
                            "--run",
                            path("tuned").string(),
                            "--train.device",
                            "cpu",
                            "--train.global_batch",
                            "12",
                            "--checkpoint.every",
                            "1",
                            "--train.steps",
                            "5"};
  // Slurm stops the run; its next start is the same command.
  const Exit first = trireme(
      arguments,
      {.environment = {{"TRIREME_ALLOW_FAULTS", "1"}, {"TRIREME_FAULT", "train.step:0:3:kill9"}}});
  ASSERT_EQ(first.code, 137) << first.err;
  ASSERT_EQ(saved_steps("tuned").front(), 2);

  const Exit second = trireme(arguments);

  EXPECT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(metrics("tuned").resumed_from, std::vector<std::int64_t>{2});
  EXPECT_EQ(trireme({"pretrain", "--run", path("tuned").string()}).code, 0);
  const Exit inspected = trireme({"checkpoint", "inspect", path("tuned").string()});
  EXPECT_NE(inspected.out.find("\n  hf.model_type = qwen3\n"), std::string::npos);
  Arguments by_hand = arguments;
  by_hand[6] = path("by_hand").string();
  by_hand.insert(by_hand.end(), {"--checkpoint.start", "state"});
  const Exit refused = trireme(by_hand);
  EXPECT_EQ(refused.code, 2);
  expect_words(refused, {"checkpoint.start = state", "holds only weights"});
}

TEST_F(Begin, WeightsAreTrainedAsTheModelTheyBelongTo) {
  ASSERT_EQ(pretrain("other_source", {"--train.steps", "2", "--model.rope_theta", "500"}).code, 0);
  const std::string exported = path("other_exported").string();
  ASSERT_EQ(
      trireme({"export", "--checkpoint", path("other_source").string(), "--output", exported}).code,
      0);
  ASSERT_EQ(trireme({"import", "--hf", exported, "--output", path("other_weights").string()}).code,
            0);

  const Exit other = pretrain(
      "other_model", {"--resume", path("other_weights").string(), "--model.hidden_size", "64"});
  EXPECT_EQ(other.code, 2) << other.err;
  expect_words(other, {"model.hidden_size = 64", "the weights have 32",
                       "model.rope_theta = 1e+06 (preset tiny)"});
  // A changed rope_theta fits any shape and may be intended, so the log only names it.
  const Exit turned = pretrain("turned", {"--resume", path("other_weights").string(),
                                          "--model.rope_theta", "900", "--train.steps", "1"});
  EXPECT_EQ(turned.code, 0) << turned.err;
  EXPECT_NE(turned.err.find("model.rope_theta 500 -> 900"), std::string::npos) << turned.err;
  const Exit tuned =
      testing::Process({TRIREME_PROGRAM, "pretrain", "--data", set().string(), "--run",
                        path("fitted").string(), "--resume", path("other_weights").string(),
                        "--train.steps", "1", "--train.global_batch", "4", "--train.device", "cpu"},
                       {{"OMP_NUM_THREADS", "1"}}, path("fitted.log"))
          .wait(kLimit_s);
  EXPECT_EQ(tuned.code, 0) << tuned.err;
  EXPECT_NE(read_file(path("fitted") / "config.toml").find("rope_theta = 500"), std::string::npos);
}

TEST_F(Begin, ANewRunStartsFromAnyCheckpointWithAnotherConfiguration) {
  ASSERT_EQ(pretrain("trunk", {"--train.steps", "4", "--checkpoint.every", "2"}).code, 0);
  const std::string from = (path("trunk") / "checkpoints" / "step-000000002").string();
  const auto branch = [&](const std::string& run, const Arguments& more) {
    Arguments all{"pretrain", "--run", path(run).string()};
    all.insert(all.end(), more.begin(), more.end());
    return trireme(all);
  };

  const Exit lower = branch("lower", {"--resume", from, "--optim.lr", "1e-3"});
  ASSERT_EQ(lower.code, 0) << lower.err;
  expect_words(lower, {"at step 2; the state continues", "optim.lr 0.003 -> 0.001"});
  EXPECT_EQ(metrics("lower").resumed_from, std::vector<std::int64_t>{2});
  EXPECT_EQ(metrics("lower").steps.begin()->second["tokens"], 3 * 12 * 32);

  const Exit other = branch("other", {"--resume", from, "--train.seed", "7"});
  EXPECT_EQ(other.code, 0) << other.err;
  expect_words(other, {"at step 2", "begins at sample 0: train.seed = 7 (was 42)"});

  // A conversion to fp64 and back loses no digit of fp32, in weights and optimizer state.
  const Exit wide =
      branch("wide", {"--resume", from, "--train.precision", "fp64", "--train.steps", "2"});
  EXPECT_EQ(wide.code, 0) << wide.err;
  EXPECT_EQ(branch("back", {"--resume", path("wide").string(), "--train.precision", "fp32"}).code,
            0);
  EXPECT_EQ(hash("back"), trireme({"checkpoint", "hash", from}).out);

  const Arguments init{"--init",
                       from,
                       "--data",
                       set().string(),
                       "--train.steps",
                       "1",
                       "--train.global_batch",
                       "4",
                       "--train.precision",
                       "bf16"};
  const Exit weights = branch("init", init);
  EXPECT_EQ(weights.code, 0) << weights.err;
  expect_words(weights, {"starting from the weights", "optim.lr 0.003 -> 3e-04"});
  EXPECT_TRUE(metrics("init").resumed_from.empty());
  Arguments both = init;
  both.insert(both.end(), {"--resume", from});
  EXPECT_EQ(branch("init", both).code, 2);
  const Exit shape =
      branch("shape", {"--init", from, "--data", set().string(), "--model.hidden_size", "64"});
  EXPECT_EQ(shape.code, 2);
  expect_words(shape, {"model.hidden_size = 64 (--model.hidden_size), the weights have 32"});
}

TEST_F(Begin, EveryOptimizerLearnsAndResumesBitForBit) {
  const std::vector<Arguments> optimizers{
      {"--optim.name", "sgd", "--optim.momentum", "0.9", "--optim.nesterov", "true", "--optim.lr",
       "0.3", "--optim.weight_decay", "0"},
      {"--optim.name", "lion", "--optim.lr", "1e-3"},
      {"--optim.name", "muon", "--optim.lr", "1e-3", "--optim.momentum_warmup", "6"},
      {"--optim.name", "normuon", "--optim.lr", "1e-3", "--optim.orthogonalize", "exact"}};
  for (const Arguments& optimizer : optimizers) {
    const std::string& name = optimizer[1];
    const auto run = [&](const std::string& part, const char* steps) {
      Arguments all{"--train.steps", steps, "--optim.schedule", "constant"};
      all.insert(all.end(), optimizer.begin(), optimizer.end());
      const Exit exit = pretrain(name + part, all);
      EXPECT_EQ(exit.code, 0) << exit.err;
    };
    run("_whole", "8");
    run("_parts", "3");
    const Exit alone =
        trireme({"pretrain", "--run", path(name + "_parts").string(), "--train.steps", "8"});

    EXPECT_EQ(alone.code, 0) << alone.err;
    expect_words(alone, {"resumed from", "at step 3"});
    EXPECT_EQ(hash(name + "_parts"), hash(name + "_whole"));
    const std::vector<double> losses = metrics(name + "_whole").losses();
    EXPECT_EQ(metrics(name + "_parts").losses(), losses);
    EXPECT_LT(losses.back(), losses.front() - 0.05) << name << " does not learn";
  }

  // An optimizer cannot use the state of another optimizer, but its weights can be used.
  const std::string from = path("sgd_whole").string();
  const auto begin = [&](const std::string& run, const Arguments& more) {
    Arguments all{"pretrain", "--run", path(run).string(), "--optim.name", "lion"};
    all.insert(all.end(), more.begin(), more.end());
    return trireme(all);
  };
  const Exit same = begin("sgd_whole", {"--train.steps", "9"});
  EXPECT_EQ(same.code, 2) << same.err;
  expect_words(same, {"optim.name = lion", "give --init", "--data and another --run"});
  const Exit state = begin("to_lion", {"--resume", from, "--train.steps", "9"});
  EXPECT_EQ(state.code, 2) << state.err;
  expect_words(state, {"has no optim/momentum/", "--checkpoint.start weights"});
  const Exit weights =
      begin("to_lion_weights", {"--init", from, "--data", set().string(), "--train.steps", "1",
                                "--train.global_batch", "4"});
  EXPECT_EQ(weights.code, 0) << weights.err;
}

TEST_F(Begin, AWarmupLongerThanTheRunIsAWarningAlsoWhereTheDataSaysHowLong) {
  const Exit exit = pretrain(
      "warmup", {"--train.steps", "0", "--train.epochs", "0.001", "--optim.warmup_steps", "100"});
  EXPECT_EQ(exit.code, 0) << exit.err;
  expect_words(exit, {"optim.warmup_steps = 100, but train.steps = 1"});
}

TEST_F(Begin, TheWarningOfAnUpdateThatHoldsMoreThanTheEpochsCountsWhatIsDone) {
  const Exit first = pretrain("short", {"--train.steps", "0", "--train.epochs", "0.002"});
  EXPECT_EQ(first.code, 0) << first.err;
  expect_words(first, {"train.epochs = 0.002 gives only", "in total: the run has one update with"});

  const Exit more =
      trireme({"pretrain", "--run", path("short").string(), "--train.epochs", "0.004"});
  EXPECT_EQ(more.code, 0) << more.err;
  expect_words(more, {"of them are done: the run has one more update with"});

  const Exit done = trireme({"pretrain", "--run", path("short").string()});
  EXPECT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(done.err.find("gives only"), std::string::npos) << done.err;
}

TEST_F(Begin, ARunWithLostCheckpointsDoesNotRestartSilently) {
  const Arguments arguments{"--train.steps", "2", "--checkpoint.every", "1"};
  // A run that was killed before its first commit starts anew without a question.
  ASSERT_EQ(pretrain("gone", arguments, {.fault = "train.step:0:1:kill9"}).code, 137);
  ASSERT_EQ(pretrain("gone", arguments).code, 0);
  EXPECT_EQ(status("gone")["committed"], 2);
  std::filesystem::rename(path("gone") / "checkpoints", path("gone") / "moved");

  const Exit refused = pretrain("gone", arguments);
  EXPECT_EQ(refused.code, 3) << refused.err;
  expect_words(refused, {"has committed step 2", "--resume never"});
  const Exit shapeless =
      trireme({"pretrain", "--run", path("gone").string(), "--data", set().string()});
  EXPECT_EQ(shapeless.code, 3) << shapeless.err;
  expect_words(shapeless, {"has committed step 2"});
  EXPECT_EQ(status("gone")["state"], "done") << "nothing was touched";

  Arguments anew = arguments;
  anew.insert(anew.end(), {"--resume", "never"});
  EXPECT_EQ(pretrain("gone", anew).code, 0);
  EXPECT_EQ(trireme({"pretrain", "--run", path("gone").string()}).code, 0);
  EXPECT_TRUE(metrics("gone").resumed_from.back() == 2);

  // Repeating the command resumes the run, like after a requeue. If the newest checkpoint is
  // missing, the run says so.
  EXPECT_EQ(pretrain("gone", anew).code, 0);
  std::filesystem::remove_all(path("gone") / "checkpoints" / "step-000000002");
  const Exit back = pretrain("gone", anew);
  EXPECT_EQ(back.code, 0) << back.err;
  expect_words(back, {"step 2 was committed, but", "has only step 1"});

  for (const char* step : {"step-000000001", "step-000000002"})
    std::filesystem::resize_file(path("gone") / "checkpoints" / step / "manifest.json", 100);
  const Exit damaged = pretrain("gone", anew);
  EXPECT_EQ(damaged.code, 3) << damaged.err;
  expect_words(damaged, {"no checkpoint in", "is complete; nothing was changed"});
}

}  // namespace
}  // namespace trireme
