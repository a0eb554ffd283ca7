/// A task that the program does not have, through the door that all tasks take: its own loss, its
/// own section of the configuration, its own measure; resumed like any other.

#include <gtest/gtest.h>
#include <unistd.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "faults/forked_run.hpp"
#include "objective/cross_entropy.hpp"

namespace trireme::testing {
namespace {

namespace fs = std::filesystem;

constexpr double kLimit_s = 60;

struct ScaledConfig {
  double factor = 1;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    visit("factor", self.factor, "of the loss");
  }
};

/// Cross entropy times a factor, which reports the largest target that it saw.
class ScaledEntropy final : public Objective {
 public:
  ScaledEntropy(Transformer& model, double factor, Measures& measures)
      : entropy_(model.registry(), model.head_weight(), ops::Path::plain),
        factor_(factor),
        measures_(measures),
        top_target_(measures.declare({"top_target", Combine::max, /*whole=*/true})) {}

  at::Tensor forward(const Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     ObjectiveTape& tape) override {
    measures_.record(top_target_, batch.targets.max().item<double>());
    return factor_ * entropy_.forward(batch, hidden, factor_ * grad_scale, tape);
  }

  void backward(ObjectiveTape& tape) override { entropy_.backward(tape); }

  [[nodiscard]] at::Tensor evaluate(const Microbatch& batch,
                                    const at::Tensor& hidden) const override {
    return factor_ * entropy_.evaluate(batch, hidden);
  }

 private:
  CrossEntropy entropy_;
  double factor_;
  Measures& measures_;
  Measures::Id top_target_;
};

class ScaledTask final : public Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"pretrain"}; }

  [[nodiscard]] std::vector<Field> section() override { return fields_of("scaled", config_); }

  void check(Problems& problems) const override {
    if (!(config_.factor > 0)) problems.add("scaled.factor", config_.factor, "must be more than 0");
  }

  [[nodiscard]] std::unique_ptr<Objective> make_objective(
      const TaskContext& context) const override {
    return std::make_unique<ScaledEntropy>(context.model, config_.factor, context.measures);
  }

 private:
  ScaledConfig config_;
};

std::unique_ptr<Task> make_scaled() {
  return std::make_unique<ScaledTask>();
}

class TaskDoor : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = fs::temp_directory_path() / formatted("trireme_task.{}", ::getpid());
    make_set(root_);
    prepare_forks();
  }

  static void TearDownTestSuite() { fs::remove_all(root_); }

  static RanksEnd run(const std::string& name, Settings settings, const std::string& fault = "") {
    settings.insert(settings.begin(), {{"train.steps", "6"},
                                       {"train.precision", "fp32"},
                                       {"train.fused_ops", "false"},
                                       {"checkpoint.every", "2"}});
    ForkedRun run{2, root_ / "set", root_ / name, std::move(settings), fault};
    run.make_task = make_scaled;
    return run_forked(run, kLimit_s);
  }

  static std::vector<Json> steps(const std::string& name) {
    std::vector<Json> lines;
    std::istringstream text(read_file(root_ / name / "metrics.jsonl"));
    for (std::string line; std::getline(text, line);) {
      Json one = parse_json(line, "metrics.jsonl");
      if (one.contains("loss")) lines.push_back(std::move(one));
    }
    return lines;
  }

  static std::string text(const std::string& name, const char* file) {
    return read_file(root_ / name / file);
  }

  static inline fs::path root_;
};

const std::vector<int> kDone{0, 0};

TEST_F(TaskDoor, LossSectionAndMeasureAreItsOwn) {
  ASSERT_EQ(run("whole", {}).codes, kDone);
  ASSERT_EQ(run("half", {{"scaled.factor", "0.5"}}).codes, kDone);

  const std::vector<Json> whole = steps("whole");
  const std::vector<Json> half = steps("half");
  ASSERT_EQ(whole.size(), 6U);
  ASSERT_EQ(half.size(), 6U);
  EXPECT_EQ(half[0]["loss"].get<double>(), 0.5 * whole[0]["loss"].get<double>());
  EXPECT_GT(whole[0]["top_target"].get<std::int64_t>(), 300) << "of 400 tokens, on any rank";
  EXPECT_NE(text("half", "config.toml").find("[scaled]\nfactor = 0.5"), std::string::npos);
}

TEST_F(TaskDoor, ResumesBitForBitAndOnlyAsItBegan) {
  ASSERT_EQ(run("unbroken", {{"scaled.factor", "0.5"}}).codes, kDone);
  EXPECT_NE(run("broken", {{"scaled.factor", "0.5"}}, "train.step:1:5:kill9").codes, kDone);

  const RanksEnd other = run("broken", {{"scaled.factor", "0.25"}});
  EXPECT_EQ(other.codes, (std::vector<int>{2, 2})) << other.log;
  EXPECT_NE(other.log.find("scaled.factor"), std::string::npos) << other.log;
  ASSERT_EQ(run("broken", {}).codes, kDone);

  EXPECT_EQ(text("broken", "chain.txt"), text("unbroken", "chain.txt"));
}

}  // namespace
}  // namespace trireme::testing
