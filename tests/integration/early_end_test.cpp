/// Starts post-training again in the directory of a run that ended before its first checkpoint.

#include "support/post_training.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::PostTraining;
using testing::TaskCase;

class EarlyEnd : public PostTraining {
 protected:
  static void SetUpTestSuite() {
    PostTraining::SetUpTestSuite();
    ASSERT_EQ(pretrain("other", {"--train.steps", "2", "--train.seed", "9"}).code, 0);
    ASSERT_NE(hash("other"), hash("start"));
  }
};

TEST_F(EarlyEnd, AnotherModelReplacesTheFrozenWeightsOfTheFirstStart) {
  const std::string teacher = path("start").string();
  for (const TaskCase& one :
       {TaskCase{"base", "sft", "chats", {"--lora.rank", "2"}},
        TaskCase{"reference", "dpo", "pairs", {}},
        TaskCase{"named", "distill", "chats", {"--distill.teacher", teacher}}}) {
    SCOPED_TRACE(one.name);
    const std::string early = cat("early ", one.name);
    ASSERT_NE(train(one, early, "start", {.ranks = 2, .fault = "train.step:0:1:kill9"}).code, 0);
    ASSERT_TRUE(fs::is_empty(path(early) / "checkpoints"));

    TaskCase changed = one;
    if (one.task == std::string_view("distill")) changed.keys.back() = path("other").string();
    ASSERT_EQ(train(changed, early, "other", {.ranks = 2}).code, 0);
    const std::string clean = cat("clean ", one.name);
    ASSERT_EQ(train(changed, clean, "other", {.ranks = 2}).code, 0);

    EXPECT_EQ(hash(early), hash(clean));
    EXPECT_EQ(metrics(early).losses(), metrics(clean).losses());
  }
}

TEST_F(EarlyEnd, TheCopyStaysIfItIsTheModelThatTheCommandNames) {
  const TaskCase one{"adapters", "sft", "chats", {"--lora.rank", "2"}};
  ASSERT_NE(train(one, "own", "start", {.ranks = 1, .fault = "train.step:0:1:kill9"}).code, 0);
  ASSERT_EQ(train(one, "named", "start", {.ranks = 1}).code, 0);

  const auto exit = train(one, "own", "own/base/step-000000000", {.ranks = 1});

  EXPECT_EQ(exit.code, 0) << exit.err;
  EXPECT_EQ(hash("own"), hash("named"));
}

TEST_F(EarlyEnd, CopiedWeightsAloneAreNoForeignDirectory) {
  fs::create_directories(path("refused") / "base");
  fs::copy(path("start") / "checkpoints/step-000000002", path("refused") / "base/step-000000000",
           fs::copy_options::recursive);
  const TaskCase one{"adapters", "sft", "chats", {"--lora.rank", "2"}};
  const auto exit = train(one, "refused", "start", {.ranks = 1});
  EXPECT_EQ(exit.code, 0) << exit.err;

  fs::create_directories(path("foreign") / "base");
  std::ofstream(path("foreign") / "base/notes.txt") << "text";
  expect_refused(train(one, "foreign", "start", {.ranks = 1}), 2, {"is not a Trireme run"});
}

}  // namespace
}  // namespace trireme
