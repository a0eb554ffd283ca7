/// Continues fine-tuning runs in new directories (--resume CHECKPOINT --run NEW).

#include "support/post_training.hpp"

namespace trireme {
namespace {

namespace fs = std::filesystem;
using testing::Exit;
using testing::PostTraining;
using testing::TaskCase;

class Branch : public PostTraining {
 protected:
  /// Continues the checkpoint of step 2 of `run` in the new run `branch`.
  static Exit continue_in(const TaskCase& one, const std::string& run, const std::string& branch) {
    return trireme(
        {one.task, "--resume", checkpoint_of(run).string(), "--run", path(branch).string()});
  }

  static fs::path checkpoint_of(const std::string& run) {
    return path(run) / "checkpoints/step-000000002";
  }
};

TEST_F(Branch, ComparesWithTheReferenceOfTheRunThatItContinues) {
  for (const TaskCase& one : {TaskCase{"whole model", "dpo", "pairs", {}},
                              TaskCase{"adapters", "dpo", "pairs", {"--lora.rank", "2"}}}) {
    SCOPED_TRACE(one.name);
    const std::string run = one.name;
    ASSERT_EQ(train(one, run, "start", {.ranks = 1}).code, 0);

    const std::string branch = cat("branch of ", run);
    const Exit exit = continue_in(one, run, branch);

    ASSERT_EQ(exit.code, 0) << exit.err;
    EXPECT_NE(exit.err.find("exact: losses and weights continue bit for bit"), std::string::npos);
    EXPECT_EQ(hash(branch), hash(run));
    EXPECT_EQ(metrics(branch).steps.at(4).at("loss"), metrics(run).steps.at(4).at("loss"));
  }
}

TEST_F(Branch, StartsWithTheCopyOfANamedModelThatWasDeletedSince) {
  for (const TaskCase& one : {TaskCase{"reference", "dpo", "pairs", {"--dpo.reference"}},
                              TaskCase{"teacher", "distill", "chats", {"--distill.teacher"}}}) {
    SCOPED_TRACE(one.name);
    const std::string run = cat("with ", one.name);
    TaskCase named = one;
    named.keys.push_back(path(one.name).string());
    fs::copy(path("start"), path(one.name), fs::copy_options::recursive);
    ASSERT_EQ(train(named, run, "start", {.ranks = 1}).code, 0);
    fs::remove_all(path(one.name));

    const std::string branch = cat("branch of ", run);
    const Exit exit = continue_in(named, run, branch);

    ASSERT_EQ(exit.code, 0) << exit.err;
    EXPECT_EQ(hash(branch), hash(run));
  }
}

TEST_F(Branch, IsRefusedIfTheReferenceIsLost) {
  const TaskCase one{"lost", "dpo", "pairs", {}};
  ASSERT_EQ(train(one, "lost", "start", {.ranks = 1}).code, 0);
  fs::remove_all(path("lost") / "base");

  const Exit exit = continue_in(one, "lost", "branch of lost");

  EXPECT_EQ(exit.code, 3) << exit.err;
  EXPECT_NE(exit.err.find(cat(path("lost").string(), "/base is missing.")), std::string::npos)
      << exit.err;
  EXPECT_NE(exit.err.find(cat("--init ", checkpoint_of("lost").string())), std::string::npos)
      << exit.err;
}

}  // namespace
}  // namespace trireme
