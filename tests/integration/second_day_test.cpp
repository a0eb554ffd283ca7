/// Tests what users do on the second day: the same command again, refused commands on an existing
/// run, other data, a start that was killed, a request to a finished run.

#include <filesystem>
#include <fstream>

#include "core/files/file.hpp"
#include "support/run_program.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::Arguments;
using testing::Exit;

class SecondDay : public testing::RunProgram {
 protected:
  static std::string text(const std::string& run, const char* file) {
    return read_file(path(run) / file);
  }
};

TEST_F(SecondDay, EpochsOverOtherDataEndAtTheSameStepAfterAResume) {
  ASSERT_EQ(pretrain("old", {"--train.steps", "2"}).code, 0);
  const Arguments arguments{"--resume",       path("old").string(),
                            "--train.steps",  "0",
                            "--train.epochs", "0.02",
                            "--train.seed",   "7"};
  const Exit first = pretrain("new", arguments);
  ASSERT_EQ(first.code, 0) << first.err;
  const std::string config = text("new", "config.toml");

  const Exit again = pretrain("new", arguments);

  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(text("new", "config.toml"), config);
  EXPECT_EQ(status("new")["state"], "done");
}

TEST_F(SecondDay, ADamagedTokenizerOfTheSetIsReportedBeforeTheFirstStep) {
  fs::copy(set(), path("damaged"), fs::copy_options::recursive);
  std::ofstream(path("damaged") / "tokenizer/tokenizer.json", std::ios::app) << "\n";

  const Exit exit = pretrain("tokenizer", {"--data", path("damaged").string()});

  EXPECT_EQ(exit.code, 3) << exit.err;
  EXPECT_FALSE(fs::exists(path("tokenizer"))) << "nothing was changed";
}

TEST_F(SecondDay, AnotherPeakMovesTheEndOfTheLearningRateOfARunThatCommittedNothing) {
  ASSERT_EQ(pretrain("killed", {"--train.steps", "9"}, {.fault = "train.step:0:2:kill9"}).code,
            137);

  const Exit exit = trireme(
      {"pretrain", "--run", path("killed").string(), "--optim.lr", "1e-5", "--train.steps", "2"});

  EXPECT_EQ(exit.code, 0) << exit.err;
  EXPECT_NE(text("killed", "config.toml").find("min_lr = 1e-06"), std::string::npos)
      << text("killed", "config.toml");
  EXPECT_EQ(exit.err.find("not bit for bit"), std::string::npos) << "the option was not given";
}

TEST_F(SecondDay, ARefusedCommandLeavesTheRunAsItWas) {
  ASSERT_EQ(pretrain("done", {"--train.steps", "2"}).code, 0);
  fs::create_directory(path("done") / "verdicts");
  std::ofstream(path("done") / "verdicts/rank-00000.json") << "{}";
  const std::string before = text("done", "status.json");

  for (const Arguments& refused :
       {Arguments{"--data.packing", "concat"}, Arguments{"--resume", "never"}}) {
    const Exit exit = pretrain("done", refused);
    EXPECT_EQ(exit.code, 2) << exit.err;
  }
  EXPECT_EQ(text("done", "status.json"), before);
  EXPECT_EQ(text("done", "verdicts/rank-00000.json"), "{}");

  const Exit moments = pretrain(
      "lion", {"--resume", path("done").string(), "--optim.name", "lion", "--train.steps", "3"});
  EXPECT_EQ(moments.code, 2) << moments.err;
  EXPECT_FALSE(fs::exists(path("lion"))) << "the directory of the refused run";
}

TEST_F(SecondDay, TheStatusNamesTheStepAtWhichANewRunBegan) {
  ASSERT_EQ(pretrain("two", {"--train.steps", "2"}).code, 0);

  const Exit exit = pretrain("at_its_end", {"--resume", path("two").string()});

  EXPECT_EQ(exit.code, 0) << exit.err;
  EXPECT_EQ(status("at_its_end")["state"], "done");
  EXPECT_EQ(status("at_its_end")["step"], 2);
}

TEST_F(SecondDay, AStopFileDoesNotUndoARunThatIsDone) {
  ASSERT_EQ(pretrain("stopped", {"--train.steps", "2"}).code, 0);
  std::ofstream(path("stopped") / "STOP") << "";

  EXPECT_EQ(pretrain("stopped", {"--train.steps", "2"}).code, 0);

  EXPECT_EQ(status("stopped")["state"], "done");
  EXPECT_FALSE(fs::exists(path("stopped") / "STOP"));
}

TEST_F(SecondDay, AnotherValidationSetHasALossOfItsOwn) {
  fs::copy(set(), path("other"), fs::copy_options::recursive);
  const Arguments arguments{"--train.steps", "2", "--train.eval_every", "2", "--data.valid_path"};
  const auto with = [&](const fs::path& valid) {
    Arguments all = arguments;
    all.push_back(valid.string());
    return all;
  };
  ASSERT_EQ(pretrain("valid", with(set())).code, 0);
  EXPECT_EQ(count(text("valid", "metrics.jsonl"), "eval_step"), 1U);

  ASSERT_EQ(pretrain("valid", with(set())).code, 0);
  EXPECT_EQ(count(text("valid", "metrics.jsonl"), "eval_step"), 1U) << "known already";
  ASSERT_EQ(pretrain("valid", with(path("other"))).code, 0);
  EXPECT_EQ(count(text("valid", "metrics.jsonl"), "eval_step"), 2U);
}

TEST_F(SecondDay, OtherSinksMayBeChosenAtAResume) {
  expect_refused(pretrain("sinks", {"--metrics.sinks", "jsonl,paper"}), 2,
                 {"metrics.sinks = paper", "textfile, progress, none", "(--metrics.sinks)"});
  const Exit first = pretrain("sinks", {"--train.steps", "2", "--metrics.sinks", "none"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_FALSE(fs::exists(path("sinks") / "metrics.jsonl"));
  EXPECT_EQ(first.err.find("step 1/2  loss"), std::string::npos) << first.err;

  const Exit second = pretrain("sinks", {"--train.steps", "3", "--metrics.sinks", "jsonl"});

  ASSERT_EQ(second.code, 0) << second.err;
  EXPECT_EQ(metrics("sinks").resumed_from, std::vector<std::int64_t>{2});
  EXPECT_EQ(metrics("sinks").steps.size(), 1U);
  EXPECT_EQ(metrics("sinks").lines.back()["attempt"], 1);
  EXPECT_EQ(second.err.find("step 3/3  loss"), std::string::npos) << second.err;
}

TEST_F(SecondDay, AnOldRunWithoutTheKeyOfSinksResumesWithAllSinks) {
  ASSERT_EQ(pretrain("before", {"--train.steps", "2"}).code, 0);
  std::string config = text("before", "config.toml");
  const std::size_t at = config.find("[metrics]");
  ASSERT_NE(at, std::string::npos) << config;
  config.erase(at, config.find('[', at + 1) - at);
  std::ofstream(path("before") / "config.toml") << config;

  const Exit exit = pretrain("before", {"--train.steps", "3"});

  ASSERT_EQ(exit.code, 0) << exit.err;
  EXPECT_EQ(metrics("before").steps.size(), 3U);
  EXPECT_NE(exit.err.find("step 3/3  loss"), std::string::npos) << exit.err;
}

TEST_F(SecondDay, GenerationSettingsAndTemplateOfAnImportedModelAreKept) {
  ASSERT_EQ(pretrain("source", {"--train.steps", "1"}).code, 0);
  const std::string folder = path("hf").string();
  ASSERT_EQ(trireme({"export", "--checkpoint", path("source").string(), "--output", folder}).code,
            0);
  std::ofstream(fs::path(folder) / "generation_config.json") << R"({"eos_token_id": [2, 5]})";
  const std::string jinja = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}";
  std::ofstream(fs::path(folder) / "chat_template.jinja") << jinja;
  ASSERT_EQ(trireme({"import", "--hf", folder, "--output", path("imported").string()}).code, 0);

  ASSERT_EQ(pretrain("tuned", {"--init", path("imported").string(), "--train.steps", "1"}).code, 0);

  EXPECT_EQ(text("tuned", "checkpoints/step-000000001/generation_config.json"),
            R"({"eos_token_id": [2, 5]})");
  EXPECT_EQ(text("tuned", "checkpoints/step-000000001/chat_template.jinja"), jinja)
      << "the set of texts has none";
}

}  // namespace
}  // namespace trireme
