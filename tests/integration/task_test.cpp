/// Defines tasks outside of the program and runs them. One has its own loss, configuration section
/// and measure. The other makes its samples with the model that it trains.

#include <gtest/gtest.h>
#include <unistd.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <numeric>
#include <sstream>

#include "comm/scalars.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/process/failpoints.hpp"
#include "faults/forked_run.hpp"
#include "objective/cross_entropy.hpp"
#include "train/step/microbatches.hpp"

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

/// Cross entropy times a factor. Reports the largest target that it saw.
class ScaledEntropy final : public objective::Objective {
 public:
  ScaledEntropy(model::Transformer& model, double factor, Measures& measures)
      : entropy_(model.registry(), model.head_weight(), ops::Path::plain),
        factor_(factor),
        measures_(measures),
        top_target_(measures.declare({"top_target", Combine::max, /*whole=*/true})) {}

  at::Tensor forward(const parallel::Microbatch& batch, const at::Tensor& hidden, double grad_scale,
                     objective::ObjectiveGrads& saved) override {
    measures_.record(top_target_, batch.targets.max().item<double>());
    return factor_ * entropy_.forward(batch, hidden, factor_ * grad_scale, saved);
  }

  void backward(objective::ObjectiveGrads& saved) override { entropy_.backward(saved); }

  [[nodiscard]] at::Tensor evaluate(const parallel::Microbatch& batch,
                                    const at::Tensor& hidden) const override {
    return factor_ * entropy_.evaluate(batch, hidden);
  }

 private:
  objective::CrossEntropy entropy_;
  double factor_;
  Measures& measures_;
  Measures::Id top_target_;
};

class ScaledTask final : public train::Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"pretrain"}; }

  [[nodiscard]] std::vector<Field> section() override { return fields_of("scaled", config_); }

  void check(Problems& problems) const override {
    if (!(config_.factor > 0)) problems.add("scaled.factor", config_.factor, "must be more than 0");
  }

  [[nodiscard]] std::unique_ptr<objective::Objective> make_objective(
      const train::TaskContext& context) const override {
    return std::make_unique<ScaledEntropy>(context.model, config_.factor, context.measures);
  }

 private:
  ScaledConfig config_;
};

std::unique_ptr<train::Task> make_scaled() {
  return std::make_unique<ScaledTask>();
}

/// Makes the samples of each update with the current model: prompts that depend on all answers so
/// far, with the most likely next tokens as targets.
class Rollouts final : public train::SampleSource {
 public:
  explicit Rollouts(const train::SourceContext& context) : context_(context) {}

  void restore(const train::RunValues& saved, const std::string& /*checkpoint*/) override {
    now_ = {train::saved_next_sample(saved), std::stoll(saved.samples.at("answers"))};
  }

  void put_state(std::int64_t next_sample, train::RunValues& values) override {
    const State& state = next_sample == now_.next_sample ? now_ : before_;
    EXPECT_EQ(state.next_sample, next_sample);
    values.samples["answers"] = cat(state.answers);
  }

  train::UpdateSamples next() override {
    if (failpoint_triggered("rollouts.stop")) ::raise(SIGUSR2);
    const train::TrainConfig& train = context_.config.train;
    const int ranks = context_.mesh.size(parallel::Axis::dp);
    train::UpdateSamples samples;
    std::int64_t answers = 0;
    for (std::int64_t i = context_.mesh.rank(parallel::Axis::dp); i < train.global_batch;
         i += ranks) {
      samples.batches.push_back(make(now_.next_sample + i));
      const std::vector<std::int64_t>& targets = samples.batches.back().targets;
      answers += std::accumulate(targets.begin(), targets.end(), std::int64_t{0});
    }
    answers = comm::all_reduce_value(context_.world, answers, comm::ReduceOp::sum, "answers");
    before_ = now_;
    now_ = {before_.next_sample + train.global_batch, 31 * before_.answers % 1009 + answers};
    samples.next_sample = now_.next_sample;
    return samples;
  }

  [[nodiscard]] std::string origin(std::int64_t /*first*/, std::int64_t /*end*/) const override {
    return "rollouts";
  }

  [[nodiscard]] std::span<const data::SampleSet> validation() const override {
    return context_.validation;
  }

 private:
  static constexpr std::int64_t kLength = 16;

  struct State {
    std::int64_t next_sample = 0;
    std::int64_t answers = 0;
  };

  [[nodiscard]] data::Batch make(std::int64_t index) const {
    const at::NoGradGuard no_grad;
    const std::int64_t updates = context_.config.train.global_batch;
    data::Batch batch;
    batch.B = 1;
    batch.T = kLength;
    for (std::int64_t i = 0; i < kLength; ++i) {
      batch.tokens.push_back((now_.answers + 7 * index + 3 * i) %
                             context_.model.config().vocab_size);
      batch.positions.push_back(i);
    }
    batch.targets.assign(kLength, 0);
    batch.segment_bounds = {0, kLength};
    batch.sample_indices = {index};
    const parallel::Microbatch prompt =
        train::to_microbatch(batch, at::kCPU, /*step=*/0, /*training=*/false);
    const at::Tensor hidden = context_.model.hidden(prompt);
    const at::Tensor answer = context_.model.logits(hidden.flatten(0, 1)).argmax(-1);
    std::copy_n(answer.const_data_ptr<std::int64_t>(), kLength, batch.targets.begin());
    batch.num_targets = kLength;
    batch.update_targets = updates * kLength;
    batch.update_samples = updates;
    batch.update_batches = updates;
    return batch;
  }

  train::SourceContext context_;
  State before_;
  State now_;
};

class RolloutTask final : public train::Task {
 public:
  [[nodiscard]] std::vector<std::string_view> set_kinds() const override { return {"pretrain"}; }

  [[nodiscard]] std::unique_ptr<objective::Objective> make_objective(
      const train::TaskContext& context) const override {
    return train::make_cross_entropy(context);
  }

  [[nodiscard]] std::unique_ptr<train::SampleSource> make_source(
      const train::SourceContext& context) const override {
    return std::make_unique<Rollouts>(context);
  }
};

std::unique_ptr<train::Task> make_rollouts() {
  return std::make_unique<RolloutTask>();
}

class TaskDoor : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    root_ = fs::temp_directory_path() / formatted("trireme_task.{}", ::getpid());
    make_set(root_);
    prepare_forks();
  }

  static void TearDownTestSuite() { fs::remove_all(root_); }

  static RanksEnd run(const std::string& name, Settings settings, const std::string& fault = "",
                      std::unique_ptr<train::Task> (*make_task)() = make_scaled) {
    settings.insert(settings.begin(), {{"train.steps", "6"},
                                       {"train.precision", "fp32"},
                                       {"train.fused_ops", "false"},
                                       {"checkpoint.every", "2"}});
    ForkedRun run{2, root_ / "set", root_ / name, std::move(settings), fault};
    run.make_task = make_task;
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

class ATaskThatMakesItsSamples : public TaskDoor {
 protected:
  static RanksEnd roll(const std::string& name, const std::string& fault = "") {
    return run(name, {{"train.eval_every", "4"}, {"data.split", "90,10,0"}}, fault, make_rollouts);
  }

  static void SetUpTestSuite() {
    TaskDoor::SetUpTestSuite();
    ASSERT_EQ(roll("unbroken").codes, kDone);
  }
};

TEST_F(ATaskThatMakesItsSamples, TrainsOnThemAndValidates) {
  const std::vector<Json> lines = steps("unbroken");
  ASSERT_EQ(lines.size(), 6U);
  EXPECT_EQ(lines[0]["num_targets"], 12 * 16);
  EXPECT_LT(lines[5]["loss"].get<double>(), lines[0]["loss"].get<double>());
  EXPECT_NE(text("unbroken", "metrics.jsonl").find("valid_loss"), std::string::npos);
}

TEST_F(ATaskThatMakesItsSamples, ResumesBitForBitAfterAKill) {
  EXPECT_NE(roll("killed", "train.step:1:4:kill9").codes, kDone);
  ASSERT_EQ(roll("killed").codes, kDone);
  EXPECT_EQ(text("killed", "chain.txt"), text("unbroken", "chain.txt"));
}

TEST_F(ATaskThatMakesItsSamples, SavesTheStateBeforeAnUpdateThatWasCancelled) {
  const RanksEnd stopped = roll("stopped", "rollouts.stop:0:2:trigger");
  EXPECT_EQ(stopped.codes, (std::vector<int>{75, 75})) << stopped.log;
  EXPECT_NE(stopped.log.find("at step 1/6"), std::string::npos) << stopped.log;
  ASSERT_EQ(roll("stopped").codes, kDone);
  EXPECT_EQ(text("stopped", "chain.txt"), text("unbroken", "chain.txt"));
}

}  // namespace
}  // namespace trireme::testing
