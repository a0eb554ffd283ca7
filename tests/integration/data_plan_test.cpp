/// Runs on several data sets: blends, phases, splits, and the record of them in checkpoints.

#include <cmath>

#include "data_prep/bench/synth.hpp"
#include "support/run_program.hpp"
#include "unit/data_prep/small_corpus.hpp"

namespace trireme {
namespace {

using testing::Arguments;
using testing::Exit;

class DataPlan : public testing::RunProgram {
 protected:
  static void SetUpTestSuite() {
    RunProgram::SetUpTestSuite();
    const std::string corpus = path("other.jsonl").string();
    data_prep::write_synth(corpus, 300, 9, false);
    data_prep::PackConfig config = testing::pack_config(corpus, path("other"));
    config.seq_len = 32;
    testing::pack_with(config, (set() / "tokenizer").string(), nullptr);
    pack_texts("ones", 0);
    pack_texts("few", 4);
  }

  /// Writes 256 documents of one token, and then `texts` documents that fill a sequence of 32
  /// tokens each.
  static void pack_texts(const std::string& name, int texts) {
    std::string lines;
    for (int i = 0; i < 256; ++i) lines += "{\"text\":\"a\"}\n";
    for (int i = 0; i < texts; ++i) lines += "{\"text\":\"" + std::string(32, 'q') + "\"}\n";
    testing::write_text(path(name + ".jsonl"), lines);
    data_prep::PackConfig config = testing::pack_config(path(name + ".jsonl").string(), path(name));
    config.seq_len = 32;
    config.documents.text.bos = config.documents.text.eos = false;
    testing::pack_with(config, (set() / "tokenizer").string(), nullptr);
  }

  static void expect_refused(const Exit& exit, const std::vector<std::string>& words,
                             int code = 3) {
    EXPECT_EQ(exit.code, code) << exit.err;
    const std::string what = "trireme: error:";
    const std::size_t first = exit.err.find(what);
    ASSERT_NE(first, std::string::npos) << exit.err;
    EXPECT_EQ(exit.err.find(what, first + 1), std::string::npos) << "twice: " << exit.err;
    for (const std::string& word : words)
      EXPECT_NE(exit.err.find(word, first), std::string::npos) << word << " not in " << exit.err;
  }

  static std::string plan(const std::string& text) {
    std::string result = text;
    for (const auto& [name, folder] : {std::pair{"$A", set()}, {"$B", path("other")}}) {
      for (std::size_t i = 0; (i = result.find(name, i)) != std::string::npos;) {
        result.replace(i, 2, folder.string());
        i += folder.string().size();
      }
    }
    return result;
  }

  static Arguments arguments(const std::string& data, const Arguments& more) {
    Arguments all{"--data", plan(data), "--checkpoint.every", "4", "--train.precision", "fp64"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
};

TEST_F(DataPlan, ABlendWithPhasesResumesOnOtherRanksWithTheSameLosses) {
  const std::string data = "0.7 $A + 0.3 $B; from 4: 1 $B; from 6 at 48: 1 $A + 1 $B";
  const Arguments all = arguments(data, {"--train.steps", "9"});
  ASSERT_EQ(pretrain("whole", all, {.ranks = 2}).code, 0);
  const std::vector<double> expected = metrics("whole").losses();
  ASSERT_EQ(expected.size(), 9U);

  // A shorter schedule would give other learning rates. So the first run has the same number of
  // steps and is stopped early.
  const Exit killed = pretrain("parts", all, {.ranks = 1, .fault = "train.step:0:6:kill9"});
  EXPECT_NE(killed.code, 0);
  const Exit rest = pretrain("parts", all, {.ranks = 3});
  ASSERT_EQ(rest.code, 0) << rest.err;

  EXPECT_EQ(metrics("parts").resumed_from, std::vector<std::int64_t>{4});
  const std::vector<double> parts = metrics("parts").losses();
  ASSERT_EQ(parts.size(), 9U);
  for (std::size_t i = 0; i < parts.size(); ++i)
    EXPECT_NEAR(parts[i], expected[i], 1e-10 * expected[i]) << "step " << i + 1;
}

TEST_F(DataPlan, APhaseMayBeAppendedAndThePastMayNotChange) {
  const Arguments constant{"--train.steps", "4", "--optim.schedule", "constant"};
  ASSERT_EQ(pretrain("more", arguments("$A", constant)).code, 0);
  const Arguments eight{"--train.steps", "8", "--optim.schedule", "constant"};

  const Exit other = pretrain("more", arguments("$B", eight));
  const Exit early = pretrain("more", arguments("$A; from 4: 1 $B", eight));
  const Exit split = pretrain("more", arguments("$A", {"--data.split", "9,1"}));
  const Exit good = pretrain("more", arguments("$A; from 5: 1 $A + 1 $B; from 9: 1 $B", eight));

  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("contains other tokens"), std::string::npos) << other.err;
  EXPECT_EQ(early.code, 2);
  EXPECT_NE(early.err.find("phases"), std::string::npos) << early.err;
  EXPECT_EQ(split.code, 2);
  EXPECT_EQ(good.code, 0) << good.err;
  EXPECT_EQ(metrics("more").losses().size(), 8U);
  EXPECT_NE(good.err.find("data.path: phase 3 begins at step 9, but the run ends at step 8."),
            std::string::npos)
      << good.err;
  EXPECT_EQ(good.err.find("data.path: phase 2"), std::string::npos) << good.err;
}

TEST_F(DataPlan, ASplitValidatesOnItsOwnPartAndConcatTrains) {
  const Exit exit = pretrain(
      "split",
      arguments("$A + $B", {"--train.steps", "4", "--data.split", "90,10", "--train.eval_every",
                            "2", "--data.packing", "concat", "--data.cross_documents", "true"}));
  ASSERT_EQ(exit.code, 0) << exit.err;
  EXPECT_NE(exit.err.find("validation loss"), std::string::npos) << exit.err;

  const Exit steps = pretrain("epochs", arguments("1 $A + 1 $B", {}));
  EXPECT_EQ(steps.code, 2);
  EXPECT_NE(steps.err.find("train.steps"), std::string::npos) << steps.err;
}

TEST_F(DataPlan, DataWithoutTargetsIsRefusedBeforeTraining) {
  const Arguments none{"--train.steps", "2", "--train.eval_every", "1"};
  const auto with = [&](const char* key, const std::string& value) {
    Arguments all = none;
    all.insert(all.end(), {key, value});
    return all;
  };

  expect_refused(pretrain("ones_run", with("--data", path("ones").string()), {.ranks = 2}),
                 {path("ones").string(), "no training targets", "pack"});
  expect_refused(pretrain("ones_run", with("--data.valid_path", path("ones").string())),
                 {path("ones").string(), "no training targets"});
  expect_refused(pretrain("ones_run", with("--data.split", "100000,1")),
                 {set().string(), "documents 600 to 600", "data.split"});
  expect_refused(pretrain("ones_run", with("--data.split", "0.9")),
                 {"data.split = 0.9", "no share for valid"}, 2);
  EXPECT_FALSE(std::filesystem::exists(path("ones_run")));
}

TEST_F(DataPlan, AValidationSetOfAnotherKindIsRefused) {
  testing::write_text(path("qa.jsonl"), "{\"question\":\"one and one?\",\"answer\":\"two\"}\n");
  data_prep::PackConfig config = testing::pack_config(path("qa.jsonl").string(), path("qa"));
  config.documents.kind = "sft";
  config.documents.chat.format = "plain";
  config.documents.chat.record_fields = "question,answer";
  config.seq_len = 32;
  testing::pack_with(config, (set() / "tokenizer").string(), nullptr);

  const Exit exit = pretrain("qa_run", {"--train.steps", "2", "--train.eval_every", "1",
                                        "--data.valid_path", path("qa").string()});

  EXPECT_EQ(exit.code, 2) << exit.err;
  EXPECT_NE(exit.err.find("has kind sft, but pretrain is required"), std::string::npos) << exit.err;
  EXPECT_FALSE(std::filesystem::exists(path("qa_run")));
}

TEST_F(DataPlan, AnUpdateWithoutTargetsEndsTheRunAndChangesNothing) {
  const Arguments arguments{"--data",
                            path("few").string(),
                            "--train.steps",
                            "20",
                            "--train.seed",
                            "1",
                            "--train.micro_batch",
                            "1",
                            "--train.global_batch",
                            "2",
                            "--checkpoint.every",
                            "1"};

  const Exit two = pretrain("few_run", arguments, {.ranks = 2, .keep_rank_codes = true});

  ASSERT_FALSE(saved_steps("few_run").empty()) << two.err;
  const std::int64_t last = saved_steps("few_run").front();
  const std::string samples =
      "samples " + std::to_string(2 * last) + " to " + std::to_string(2 * last + 1);
  const std::string step = "step " + std::to_string(last + 1);
  expect_refused(
      two, {step, samples, path("few").string(), "No weights and no checkpoint were changed"});
  EXPECT_EQ(rank_codes(2), std::set<int>{3});
  EXPECT_EQ(status("few_run")["state"], "failed");
  EXPECT_EQ(status("few_run")["exit_code"], 3);
  EXPECT_EQ(status("few_run")["step"], last);
  EXPECT_EQ(std::ssize(metrics("few_run").steps), last);
  for (const double loss : metrics("few_run").losses()) EXPECT_TRUE(std::isfinite(loss));
  const std::string whole = hash("few_run");
  EXPECT_EQ(trireme({"checkpoint", "verify", path("few_run").string()}).code, 0);
  expect_refused(pretrain("few_run", arguments), {step, samples});
  EXPECT_EQ(hash("few_run"), whole);
  EXPECT_EQ(saved_steps("few_run").front(), last);
}

}  // namespace
}  // namespace trireme
