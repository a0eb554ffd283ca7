/// A model argument may be a checkpoint, a run, a LoRA run or a Hugging Face directory. The chat
/// template of the model is compared with the template of every data set.

#include "support/post_training.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::Arguments;
using testing::Exit;
using testing::expect_steps;
using testing::TaskCase;

class AnyModel : public testing::PostTraining {};

/// A Hugging Face directory and a LoRA run work wherever a model may be given: on several ranks,
/// after a kill, and after the model was deleted.
TEST_F(AnyModel, AModelMayBeAHuggingFaceDirectoryOrALoraRun) {
  const auto text = [](const char* name) { return path(name).string(); };
  const TaskCase sft{"sft", "sft", "chats", {}};
  ASSERT_EQ(train(sft, "any lora", "start", {.ranks = 1}, {"--lora.rank", "2"}).code, 0);
  ASSERT_EQ(trireme({"export", "--checkpoint", text("any lora"), "--output", text("any hf")}).code,
            0);
  ASSERT_EQ(trireme({"import", "--hf", text("any hf"), "--output", text("any run")}).code, 0);

  // Adapters that are merged into their base equal the exported directory, and the directory equals
  // its import.
  const TaskCase dpo{"dpo", "dpo", "pairs", {}};
  const Arguments reference{"--dpo.reference", text("any run")};
  ASSERT_EQ(train(dpo, "of run", "any run", {.ranks = 2}, reference).code, 0);
  fs::copy(path("any lora"), path("gone lora"), fs::copy_options::recursive);
  fs::copy(path("any hf"), path("gone hf"), fs::copy_options::recursive);
  ASSERT_NE(train(dpo, "of hf", "gone hf", {.ranks = 2, .fault = "train.step:1:4:kill9"},
                  {"--dpo.reference", text("gone lora")})
                .code,
            0);
  EXPECT_FALSE(fs::exists(path("of hf") / "init")) << "what is made of a start is for the start";
  fs::remove_all(path("gone lora"));
  fs::remove_all(path("gone hf"));
  const Exit resumed = mpirun(2, {TRIREME_PROGRAM, "dpo", "--run", text("of hf")});
  EXPECT_EQ(resumed.code, 0) << resumed.err;
  EXPECT_EQ(file("of hf", "chain.txt"), file("of run", "chain.txt"));

  ASSERT_EQ(train(sft, "of lora", "any lora", {.ranks = 1}).code, 0);
  ASSERT_EQ(train(sft, "of folder", "any hf", {.ranks = 1}).code, 0);
  EXPECT_EQ(file("of lora", "chain.txt"), file("of folder", "chain.txt"));
}

TEST_F(AnyModel, TheTemplateOfAnImportedModelIsHeldAgainstEveryDataSet) {
  const auto text = [](const char* name) { return path(name).string(); };
  const TaskCase sft{"sft", "sft", "chats", {}};
  ASSERT_EQ(train(sft, "taught", "start", {.ranks = 1}).code, 0);
  ASSERT_EQ(trireme({"export", "--checkpoint", text("taught"), "--output", text("taught hf")}).code,
            0);
  ASSERT_EQ(trireme({"import", "--hf", text("taught hf"), "--output", text("taught run")}).code, 0);
  const std::vector<std::string> words{"chatml", "minimind-v3", "--allow-other-template"};
  const TaskCase other{"sft", "sft", "chatml", {}};
  for (const char* start : {"taught run", "taught hf"})
    expect_refused(train(other, "untaught", start, {.ranks = 1}), 2, words);
  expect_refused(train(sft, "untaught", "start", {.ranks = 1},
                       {"--data.valid_path", text("chatml"), "--train.eval_every", "2"}),
                 2, words);
  expect_refused(train({"distill", "distill", "chatml", {}}, "untaught", "start", {.ranks = 1},
                       {"--distill.teacher", text("taught hf")}),
                 2, words);
  EXPECT_FALSE(fs::exists(path("untaught")));
  const Arguments eval{"eval", "--checkpoint", text("taught hf"), "--data", text("chatml")};
  expect_refused(trireme(eval), 2, words);
  Arguments allowed = eval;
  allowed.emplace_back("--allow-other-template");
  const Exit scored = trireme(allowed);
  EXPECT_EQ(scored.code, 0) << scored.err;
  fs::remove(path("taught hf") / "tokenizer.json");  // the data set knows the bytes of its tokens
  EXPECT_EQ(trireme(allowed).out, scored.out);
  expect_refused(
      trireme({"eval", "--checkpoint", text("taught hf"), "--choices", text("items.jsonl")}), 3,
      {"has no tokenizer that can be read", "takes token ids only", "Give --data"});
  expect_refused(
      train({"distill", "distill", "chats", {}}, "untaught", "start", {.ranks = 1},
            {"--distill.teacher", text("start"), "--data", path("chats.jsonl").string()}),
      2, {"--kind pretrain", "(conversations: --kind sft --template NAME)"});
  ASSERT_EQ(pack("dpo", "pairs", "chatml", "chatml pairs").code, 0);
  expect_refused(trireme({"dpo-reference", "--init", text("taught hf"), "--data",
                          text("chatml pairs"), "--output", text("no scores")}),
                 2, words);
  EXPECT_EQ(
      train(other, "taught anew", "taught run", {.ranks = 1}, {"--allow-other-template"}).code, 0);
}

TEST_F(AnyModel, ATeacherKeepsTheRopeFactorsOfItsOwnLength) {
  ASSERT_EQ(pretrain("longrope teacher",
                     {"--train.steps", "2", "--model.max_seq_len", "64", "--model.rope_scaling",
                      "longrope,factor=4,original_max_position_embeddings=64,"
                      "short_factor=1:1.5:2:3:4:5:6:7,long_factor=4:8:12:16:20:24:28:32"})
                .code,
            0);
  const TaskCase distill{"distill", "distill", "chats", {}};
  const auto losses = [&](const std::string& run, const char* longest) {
    const Exit exit = train(
        distill, run, "start", {.ranks = 1},
        {"--distill.teacher", path("longrope teacher").string(), "--model.max_seq_len", longest});
    EXPECT_EQ(exit.code, 0) << exit.err;
    return file(run, "chain.txt");
  };
  const std::string expected = losses("short student", "64");

  EXPECT_EQ(losses("long student", "128"), expected);
}

TEST_F(AnyModel, ATeacherMayHaveAnEmbeddingOfAnotherSize) {
  const Arguments small{"--train.steps", "2", "--model.hidden_size", "16"};
  Arguments padded = small;
  padded.insert(padded.end(), {"--model.vocab_size", "407"});
  ASSERT_EQ(pretrain("padded teacher", padded).code, 0);
  const Arguments fp64{"--train.precision", "fp64", "--distill.teacher",
                       path("padded teacher").string()};
  const TaskCase distill{"distill", "distill", "chats", {}};
  const Exit alone = train(distill, "padded alone", "start", {.ranks = 1}, fp64);
  ASSERT_EQ(alone.code, 0) << alone.err;
  EXPECT_NE(alone.err.find("ids that both have"), std::string::npos) << alone.err;
  Arguments cut = fp64;
  cut.insert(cut.end(), {"--parallel.tp", "2"});
  ASSERT_EQ(train(distill, "padded cut", "start", {.ranks = 2}, cut).code, 0);
  expect_steps(metrics("padded cut").steps, metrics("padded alone").steps);
}

}  // namespace
}  // namespace trireme
