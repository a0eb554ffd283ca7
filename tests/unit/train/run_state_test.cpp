#include "train/state/run_state.hpp"

#include <gtest/gtest.h>

#include <array>

#include "checkpoint/save/save.hpp"
#include "comm/factory.hpp"
#include "core/error.hpp"
#include "core/problems.hpp"
#include "device/torch_bridge.hpp"
#include "optim/optimizer.hpp"
#include "support/optim_keys.hpp"
#include "train/config/open_values.hpp"
#include "train/start/weights_start.hpp"
#include "train/state/run_values.hpp"
#include "unit/core/scratch.hpp"

namespace trireme::train {
namespace {

using Values = std::map<std::string, std::string>;

const Values kGood{{"step", "20"},     {"update", "19"},         {"data.next_sample", "240"},
                   {"tokens", "7680"}, {"scaler.scale", "1024"}, {"scaler.good_steps", "3"}};

TEST(RunState, ProgressIsLoadedAsItWasSaved) {
  optim::LossScaler scaler(/*dynamic=*/true);
  const Progress progress = load_progress(RunValues::from_values(kGood), 20, scaler);
  EXPECT_EQ(progress.step, 20);
  EXPECT_EQ(progress.update, 19);
  EXPECT_EQ(progress.next_sample, 240);
  EXPECT_EQ(progress.tokens, 7680);
  RunValues again;
  put_progress(again, progress, scaler);
  EXPECT_EQ(again.to_values(), kGood);
}

TEST(RunState, NumbersWithoutSenseAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> wrong{{"step", "21"},
                                                               {"step", "0"},
                                                               {"step", "-5"},
                                                               {"step", "9223372036854775807"},
                                                               {"update", "-20"},
                                                               {"update", "21"},
                                                               {"data.next_sample", "-1"},
                                                               {"tokens", "-3"},
                                                               {"tokens", "7e3"},
                                                               {"scaler.scale", "0"},
                                                               {"scaler.scale", "inf"},
                                                               {"scaler.good_steps", "-1"}};
  for (const auto& [key, value] : wrong) {
    Values values = kGood;
    values[key] = value;
    optim::LossScaler scaler(/*dynamic=*/true);
    try {
      (void)load_progress(RunValues::from_values(values), 20, scaler);
      ADD_FAILURE() << key << " = " << value << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data) << error.what();
      EXPECT_NE(std::string(error.what()).find(key), std::string::npos) << error.what();
    }
  }
}

/// Every value that a checkpoint may have, with a text that only its type writes in this form.
const Values kAllValues{{"task", "sft"},
                        {"step", "20"},
                        {"update", "19"},
                        {"data.next_sample", "240"},
                        {"tokens", "7680"},
                        {"scaler.scale", "65536"},
                        {"scaler.good_steps", "3"},
                        {"data.content_hash", "0a"},
                        {"data.plan", "{}"},
                        {"data.plan_hash", "0b"},
                        {"data.began_at_step", "4"},
                        {"schedule", "1f1b"},
                        {"chain", ""},
                        {"skipped_in_a_row", "1"},
                        {"spikes.loss", "3f"},
                        {"spikes.grad_norm", ""},
                        {"valid_loss", "0.30000000000000004"},
                        {"early_stop.without_lower", "2"},
                        {"early_stop.best_step", "10"},
                        {"early_stop.best_loss", "2.5"},
                        {"config.optim.lr", "1e-05"},
                        {"config.train.steps", "40"},
                        {"fingerprint.threads", "2"},
                        {"init.weights_sha256", "aa"},
                        {"reference.weights_sha256", "bb"},
                        {"samples.answers", "7"},
                        {"model.hidden_size", "64"},
                        {"lora.rank", "4"},
                        {"chat.template", "chatml"},
                        {"of_a_later_version", "1"}};

TEST(RunValues, EveryTextIsWrittenAsItWasRead) {
  const RunValues values = RunValues::from_values(kAllValues);

  EXPECT_EQ(values.to_values(), kAllValues);

  EXPECT_TRUE(values.is_training_state());
  EXPECT_EQ(values.data_began, 4);
  EXPECT_EQ(values.stream.plan, "{}");
  EXPECT_EQ(values.valid_loss, 0.1 + 0.2);
  EXPECT_EQ(values.configured("optim.lr"), "1e-05");
  EXPECT_EQ(values.configured("optim.beta1"), std::nullopt);
  EXPECT_EQ(values.fingerprint, (Values{{"threads", "2"}}));
  EXPECT_EQ(values.weights_sha256, (Values{{"init", "aa"}, {"reference", "bb"}}));
  EXPECT_EQ(values.samples, (Values{{"answers", "7"}}));
  EXPECT_EQ(values.model, (Values{{"model.hidden_size", "64"},
                                  {"lora.rank", "4"},
                                  {"chat.template", "chatml"},
                                  {"of_a_later_version", "1"}}));
}

TEST(RunValues, EveryLossThatTrainingCanHaveIsReadBack) {
  for (const char* loss : {"nan", "-nan", "inf", "-inf", "5e-324", "1e+300"}) {
    const Values values{{checkpoint::kValidLossValue, loss}};
    EXPECT_EQ(RunValues::from_values(values).to_values(), values);
  }
}

TEST(RunValues, WeightsAloneAreNoTrainingStateAndHaveNoProgress) {
  const RunValues weights = RunValues::from_values({{"step", "7"}, {"model.hidden_size", "64"}});

  EXPECT_FALSE(weights.is_training_state());
  optim::LossScaler scaler(/*dynamic=*/false);
  try {
    (void)load_progress(weights, 7, scaler);
    ADD_FAILURE() << "weights alone gave a progress";
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "the checkpoint has no value 'update': it is not one of a training run");
  }
}

TEST(StateView, HasWhatIsTrainedOrWhatIsFrozenOrAll) {
  const auto world = comm::make_world("self", {});
  const parallel::Mesh mesh(*world, {});
  parallel::ParamRegistry registry;
  registry.declare({.name = "base", .shape = {3, 2}, .frozen = true});
  registry.declare({.name = "beside", .shape = {2, 2}});
  registry.allocate(mesh, {at::kBFloat16, at::kFloat}, at::kCPU);
  const std::unique_ptr<optim::Optimizer> optimizer =
      optim::make_optimizer(optim::optimizer_defaults("adamw"), registry);
  using Names = std::vector<std::string>;
  const auto names_of = [](const StateView& view) {
    Names names;
    for (const checkpoint::StateTensor& tensor : view.tensors()) names.push_back(tensor.name);
    return names;
  };
  const Names trained{"param/beside", "optim/exp_avg/beside", "optim/exp_avg_sq/beside"};

  EXPECT_EQ(names_of(StateView(registry, *optimizer, StateOf::trained)), trained);
  EXPECT_EQ(names_of(StateView(registry, *optimizer, StateOf::frozen)), Names{"param/base"});
  EXPECT_EQ(names_of(StateView(registry, *optimizer)),
            (Names{"param/base", trained[0], trained[1], trained[2]}));
  EXPECT_EQ(names_of(StateView(registry)), (Names{"param/base", "param/beside"}));
  StateView base(registry, StateOf::frozen);
  EXPECT_EQ(base.tensors()[0].dtype, DType::bf16) << "the weights that the model computes with";
  EXPECT_EQ(base.tensors()[0].bytes.size(), 3U * 2U * 2U);
  EXPECT_EQ(static_cast<const void*>(base.tensors()[0].bytes.data()),
            registry.weight(parallel::ParamId{0}).const_data_ptr());
}

std::string problems_of(const RunConfig& config) {
  Problems problems;
  check(config, problems);
  std::string text;
  for (const std::string& line : problems.lines()) text += line + '\n';
  return text;
}

TEST(RunConfig, TheBestCheckpointsNeedValidations) {
  RunConfig config;
  config.train.steps = 1;
  config.checkpoint.keep_best = 2;
  EXPECT_NE(problems_of(config).find("checkpoint.keep_best = 2, needs validations"),
            std::string::npos)
      << problems_of(config);
  config.train.eval_every = 5;
  EXPECT_EQ(problems_of(config).find("keep_best"), std::string::npos);
}

TEST(OpenValues, AnUpdateIsTheNextMultipleFrom32ThatTheRanksCanMake) {
  for (const auto& [ranks, micro_batch, batch] : std::vector<std::array<std::int64_t, 3>>{
           {1, 4, 32}, {16, 4, 64}, {3, 4, 36}, {1, 33, 33}, {8, 4, 32}, {1, 1, 32}}) {
    RunConfig config;
    config.train.micro_batch = micro_batch;
    Problems problems;

    const std::string note =
        fill_open_values(config, {.data_ranks = static_cast<int>(ranks)}, problems);

    EXPECT_EQ(config.train.global_batch, batch) << ranks << " x " << micro_batch;
    EXPECT_NE(note.find(formatted("train.global_batch = {}", batch)), std::string::npos) << note;
    EXPECT_TRUE(problems.empty());
  }
}

TEST(OpenValues, AccumulationMakesTheUpdateAndMustAgreeWithIt) {
  for (const std::int64_t given : {0, 48, 50}) {
    RunConfig config;
    config.train.accumulation = 3;
    config.train.global_batch = given;
    Problems problems;

    EXPECT_EQ(fill_open_values(config, {.data_ranks = 4}, problems), "");

    ASSERT_EQ(problems.lines().size(), given == 50 ? 1U : 0U);
    if (given == 50) {
      EXPECT_NE(problems.lines()[0].find("train.accumulation = 3, makes 48"), std::string::npos)
          << problems.lines()[0];
      EXPECT_NE(problems.lines()[0].find("train.global_batch = 50"), std::string::npos);
      continue;
    }
    EXPECT_EQ(config.train.global_batch, 48);
    EXPECT_EQ(config.train.accumulation, 0) << "or other ranks could not resume";
  }
}

TEST(OpenValues, PrecisionIsTheDevicesAndTheEndOfTheRateATenth) {
  for (const bool has_bf16 : {false, true}) {
    RunConfig config;
    config.optim.lr = 1e-5;
    Problems problems;

    fill_open_values(config, {.has_bf16 = has_bf16}, problems);

    EXPECT_EQ(config.train.precision, has_bf16 ? "bf16" : "fp32");
    EXPECT_EQ(config.optim.min_lr, 1e-6);
  }
}

TEST(OpenValues, GivenOnesStay) {
  RunConfig config;
  config.train.global_batch = 40;
  config.train.precision = "fp64";
  config.optim.min_lr = 0;
  Problems problems;

  EXPECT_EQ(fill_open_values(config, {.data_ranks = 16, .has_bf16 = true}, problems), "");

  EXPECT_EQ(config.train.global_batch, 40);
  EXPECT_EQ(config.train.precision, "fp64");
  EXPECT_EQ(config.optim.min_lr, 0);
}

TEST(OpenValues, AResumedRunKeepsItsOwn) {
  const OpenValueFacts facts{
      .data_ranks = 16,
      .has_bf16 = true,
      .saved = {
          {"train.global_batch", "32"}, {"train.precision", "fp16"}, {"optim.min_lr", "3e-05"}}};
  RunConfig config;
  config.train.micro_batch = 2;
  config.optim.lr = 1e-5;  // from before min_lr followed lr: such a run resumes unchanged
  Problems problems;

  EXPECT_EQ(fill_open_values(config, facts, problems), "");

  EXPECT_EQ(config.train.global_batch, 32);
  EXPECT_EQ(config.train.precision, "fp16");
  EXPECT_EQ(config.optim.min_lr, 3e-5);
  EXPECT_TRUE(problems.empty());
  config.train.global_batch = 0;
  config.train.accumulation = 4;
  fill_open_values(config, facts, problems);
  ASSERT_EQ(problems.lines().size(), 1U);
  for (const char* word : {"train.accumulation = 4", "128", "train.global_batch = 32"})
    EXPECT_NE(problems.lines()[0].find(word), std::string::npos) << problems.lines()[0];
}

TEST(Check, TakesTheDefaultsAndRefusesWhatCannotTrain) {
  EXPECT_EQ(problems_of(RunConfig{}), "");
  RunConfig config;
  config.optim.lr = 0;
  EXPECT_NE(problems_of(config).find("optim.lr = 0, must be more than 0"), std::string::npos);
  config = {};
  config.optim.min_lr = -0.5;
  EXPECT_NE(problems_of(config).find("optim.min_lr = -0.5"), std::string::npos);
  config = {};
  config.train.micro_batch = std::int64_t{1} << 40;
  config.train.accumulation = -1;
  EXPECT_NE(problems_of(config).find("train.micro_batch = 1099511627776"), std::string::npos);
  EXPECT_NE(problems_of(config).find("train.accumulation = -1"), std::string::npos);
}

/// A checkpoint of "param/w" (bf16) and its first moment (f64), and f32 tensors to load them into.
class LoadConverted : public Scratch {
 protected:
  static checkpoint::StateTensor tensor(const std::string& name, const at::Tensor& values) {
    return {name,
            device::to_dtype(values.scalar_type()),
            {values.numel()},
            parallel::Slice::whole({values.numel()}),
            {static_cast<std::byte*>(values.mutable_data_ptr()), values.nbytes()}};
  }

  checkpoint::Checkpoint save() {
    const checkpoint::StateDict saved{
        {tensor("param/w", weights_), tensor("optim/exp_avg/w", moments_)}, {}, {}};
    return checkpoint::Checkpoint::open(
        checkpoint::save_checkpoint(at("checkpoints"), 0, saved, *world_, {"run", true}));
  }

  std::unique_ptr<comm::Communicator> world_ = comm::make_world("self", {});
  at::Tensor weights_ = at::tensor({1.5, -2.25, 0.0, 1e30}).to(at::kBFloat16);
  at::Tensor moments_ = at::tensor({0.1, 1e-20, -3.0, 4.0}, at::kDouble);
};

TEST_F(LoadConverted, WeightsAndMomentsOfAnotherDtype) {
  const checkpoint::Checkpoint checkpoint = save();
  const at::Tensor weights = at::zeros({4}, at::kFloat);
  const at::Tensor moments = at::zeros({4}, at::kFloat);
  checkpoint::StateDict state{
      {tensor("param/w", weights), tensor("optim/exp_avg/w", moments)}, {}, {}};

  load_converted(checkpoint, state, *world_);

  EXPECT_TRUE(weights.equal(weights_.to(at::kFloat)));
  EXPECT_TRUE(moments.equal(moments_.to(at::kFloat)));
  EXPECT_NO_THROW(check_has_optimizer_state(checkpoint, state));
}

TEST_F(LoadConverted, WeightsAloneLeaveMomentsUnreadAndMissingOnesAreNamed) {
  const checkpoint::Checkpoint checkpoint = save();
  const at::Tensor weights = at::zeros({4}, at::kDouble);
  checkpoint::StateDict alone{{tensor("param/w", weights)}, {}, {}};

  load_converted(checkpoint, alone, *world_);

  EXPECT_TRUE(weights.equal(weights_.to(at::kDouble)));
  const checkpoint::StateDict other{{tensor("optim/momentum/w", weights)}, {}, {}};
  const Error error = error_of([&] { check_has_optimizer_state(checkpoint, other); });
  EXPECT_EQ(error.kind(), ErrorKind::usage);
  EXPECT_TRUE(contains(error.what(), "optim/momentum/w")) << error.what();
  EXPECT_TRUE(contains(error.what(), "--checkpoint.start weights")) << error.what();
}

}  // namespace
}  // namespace trireme::train
