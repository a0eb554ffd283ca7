#include "model/stages/stages.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "comm/self/self_communicator.hpp"
#include "core/error.hpp"
#include "model/transformer.hpp"
#include "parallel/mesh.hpp"

namespace trireme::model {
namespace {

ModelConfig model_of(std::int64_t layers, std::int64_t vocab, bool tied = true) {
  ModelConfig config = model_preset("tiny");
  config.num_layers = layers;
  config.max_seq_len = 16;
  config.tie_embeddings = tied;
  resolve(config, vocab);
  return config;
}

TEST(BalancedStages, GiveTheHeadsStageFewerLayers) {
  EXPECT_EQ(text_of(balanced_stages(model_of(8, 300), 1, 16)), "E8H");
  EXPECT_EQ(text_of(balanced_stages(model_of(8, 64), 4, 16)), "E2|2|2|2H") << "a small head";
  EXPECT_EQ(text_of(balanced_stages(model_of(9, 64), 4, 16)), "E3|2|2|2H");
  // The head costs 2 * vocab * 128 FLOPs per token, a layer about 2 * 221,000.
  EXPECT_EQ(text_of(balanced_stages(model_of(8, 3456), 4, 16)), "E3|2|2|1H");
  EXPECT_EQ(text_of(balanced_stages(model_of(4, 1000000), 4, 16)), "E1|1|1|1H");
}

TEST(BalancedStages, NoOtherSplitHasACheaperDearestStage) {
  const auto cost = [](const std::vector<StageRange>& stages, double head) {
    double most = 0;
    for (const StageRange& stage : stages)
      most = std::max(most, static_cast<double>(stage.end_layer - stage.first_layer) +
                                (stage.has_head ? head : 0));
    return most;
  };
  for (std::int64_t layers = 1; layers <= 12; ++layers) {
    for (std::int64_t count = 1; count <= layers; ++count) {
      const auto best = balanced_stages(model_of(layers, 3456), count, 16);
      EXPECT_EQ(std::ssize(best), count);
      EXPECT_EQ(best.back().end_layer, layers);
      // The last stage with k layers leaves (layers - k) / (count - 1), rounded up, for each other
      // stage.
      const double head =
          2.0 * 3456 * 128 / (2 * 128 * (2 * 128 + 2 * 64 + 3 * 448) + 2 * 128 * 16);
      double least = 1e9;
      for (std::int64_t last = 1; last <= layers - count + 1; ++last) {
        if (count == 1 && last < layers) continue;
        const std::int64_t other = count == 1 ? 0 : (layers - last + count - 2) / (count - 1);
        least =
            std::min(least, std::max(static_cast<double>(other), static_cast<double>(last) + head));
      }
      EXPECT_NEAR(cost(best, head), least, 1e-9) << layers << " layers, " << count << " stages";
    }
  }
}

TEST(BalancedStages, DistributeManyLayersByCostToo) {
  ModelConfig config = model_of(2000, 64);
  config.moe.num_experts = 4;
  config.moe.num_experts_per_tok = 1;
  config.moe.moe_intermediate_size = config.intermediate_size / 8;
  config.moe.first_dense_layers = 1000;

  const auto stages = balanced_stages(config, 40, 16);

  EXPECT_LT(stages.front().end_layer, 42) << "dense layers are dearer";
  EXPECT_GT(stages.back().end_layer - stages.back().first_layer, 58);
}

TEST(SaidStages, AreReadOrRefusedWithWhatIsWrong) {
  const ModelConfig config = model_of(6, 300);
  for (const char* text : {"E1|4|1H", "E2|2|2H", "E4|1|1H"})
    EXPECT_EQ(text_of(parse_stages(text, config, 3)), text);
  const auto refusal = [&](const char* text) -> std::string {
    try {
      (void)parse_stages(text, config, 3);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  };
  const auto says = [&](const char* text, const char* what) {
    EXPECT_NE(refusal(text).find(what), std::string::npos) << text << ": " << refusal(text);
  };
  says("E3|3H", "it has 2 stages");
  says("E2|2|3H", "it has 7 layers, the model 6");
  says("2|2|2H", "the embedding is in the first stage");
  says("E2|2|2", "the head in the last");
  says("E2|E2|2H", "the embedding is in the first stage");
  says("E2||4H", "'' is no number of layers");
  says("E0|3|3H", "'0' is no number of layers");
  says("E-1|4|3H", "'-1' is no number of layers");
  says("", "the embedding is in the first stage");
}

/// Sends one micro-batch through all stages of a model on one rank.
struct Staged {
  comm::SelfCommunicator world;
  parallel::Mesh mesh{world, {}};
  parallel::ParamRegistry registry;
  ModelConfig config;
  Transformer model;
  parallel::Microbatch batch;

  Staged(const ModelConfig& shape, const ModelStages& stages,
         parallel::Recompute recompute = parallel::Recompute::none)
      : config(shape),
        model(registry, config, stages, {.path = ops::Path::plain, .recompute = recompute}) {
    registry.allocate(mesh, {at::kDouble, at::kDouble}, at::kCPU);
    model.prepare();
    registry.initialize(5);
    batch.tokens = at::arange(24, at::kLong).view({2, 12});
    batch.dropout_positions = at::arange(12, at::kLong).expand({2, 12}).contiguous();
    batch.positions = batch.dropout_positions;
    batch.samples = at::arange(2, at::kLong);
  }

  /// Returns hidden states; gradients are added. `between` runs after each stage's backward pass.
  at::Tensor run(const std::function<void()>& between = [] {}) {
    registry.begin_update(1);
    std::vector<StageActivations> tapes(model.stages().size());
    at::Tensor x;
    for (std::size_t stage = 0; stage < tapes.size(); ++stage)
      x = model.forward(stage, batch, x, tapes[stage]);
    model.backward_final_norm(tapes.back(), at::ones_like(x) / 3);
    at::Tensor grad;
    for (std::size_t stage = tapes.size(); stage-- > 0;) {
      grad = model.backward(stage, batch, tapes[stage], grad);
      between();
    }
    return x;
  }

  [[nodiscard]] at::Tensor grads() {
    return registry.grads().range(0, registry.layout().trainable_count()).clone();
  }
};

TEST(Stages, OnOneRankAreTheWholeModel) {
  for (const bool tied : {true, false}) {
    const ModelConfig config = model_of(5, 64, tied);
    Staged whole(config, {StageRange::whole(config)});
    const at::Tensor hidden = whole.run();
    for (const char* text : {"E1|4H", "E2|2|1H", "E1|1|1|1|1H"}) {
      const auto count =
          static_cast<std::int64_t>(std::count(text, text + std::strlen(text), '|')) + 1;
      Staged staged(config, parse_stages(text, config, count));
      EXPECT_TRUE(staged.run().equal(hidden)) << text;
      EXPECT_TRUE(staged.grads().equal(whole.grads())) << text;
      at::Tensor x;
      for (std::size_t stage = 0; stage < staged.model.stages().size(); ++stage)
        x = staged.model.output(stage, staged.batch, x);
      EXPECT_TRUE(x.equal(hidden)) << text << ", without a tape";
    }
  }
}

// Deferred weight gradients (W actions) rely on this: B adds nothing to a gradient, and the
// deferred gradients are the same.
TEST(Stages, LeaveGradientsOfWeightsForTheirTurn) {
  const ModelConfig config = model_of(3, 64);
  for (const parallel::Recompute recompute :
       {parallel::Recompute::none, parallel::Recompute::selective, parallel::Recompute::full}) {
    SCOPED_TRACE(parallel::kRecomputes[static_cast<std::size_t>(recompute)]);
    Staged at_once(config, {StageRange::whole(config)}, recompute);
    at_once.run();
    Staged later(config, parse_stages("E2|1H", config, 2), recompute);
    std::vector<std::function<void()>> turns;
    later.registry.collect_deferred_grads(&turns);
    later.run([&] { EXPECT_EQ(later.grads().abs().max().item<double>(), 0); });
    later.registry.collect_deferred_grads(nullptr);
    for (const auto& add : turns) add();
    EXPECT_TRUE(later.grads().equal(at_once.grads()));
  }
}

}  // namespace
}  // namespace trireme::model
