#include "train/step/layer_norms.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "comm/self/self_communicator.hpp"
#include "support/combined_measures.hpp"
#include "train/verify/trial_model.hpp"
#include "train/verify/verify_layout.hpp"

namespace trireme::train {
namespace {

TEST(LayerNorms, NamesSortLikeTheLayers) {
  EXPECT_EQ(layer_names(2),
            (std::vector<std::string>{"embedding", "layer_00", "layer_01", "head"}));
  EXPECT_EQ(layer_names(101).at(6), "layer_005");
  EXPECT_EQ(layer_of_unit("layer 1", 2), 2U);
  EXPECT_EQ(layer_of_unit("positions", 2), 0U);
  EXPECT_EQ(layer_of_unit("reward head", 2), 3U);
}

/// Returns the layer of a parameter from its Hugging Face name.
std::string layer_of(const std::string& name) {
  const std::string prefix = "model.layers.";
  if (name.starts_with("model.embed_tokens")) return "embedding";
  if (!name.starts_with(prefix)) return "head";
  return "layer_0" + name.substr(prefix.size(), 1);
}

/// Returns the norms of the layers of `tensor_of(id)`, computed parameter by parameter.
std::map<std::string, double> norms_of(
    const parallel::ParamRegistry& registry,
    const std::function<at::Tensor(parallel::ParamId)>& tensor_of) {
  std::map<std::string, double> squares;
  for (parallel::ParamId id = 0; id < registry.size(); ++id)
    squares[layer_of(registry.spec(id).name)] += tensor_of(id).square().sum().item<double>();
  for (auto& [layer, value] : squares) value = std::sqrt(value);
  return squares;
}

TEST(LayerNorms, AreThoseOfEachParameterAndAddUpToTheGradientNorm) {
  TrialShape shape;
  shape.model = small_model_like(model::model_preset("tiny"), {});
  shape.model.tie_embeddings = false;
  shape.optim.clip_norm = 1e-3;  // gradients are clipped, and grad_norm is not
  shape.layer_norms_every = 2;
  comm::SelfCommunicator world;
  TrialModel trial(world, shape);
  trial.registry.initialize(TrialModel::kSeed);
  trial.registry.refresh_weights();
  const std::vector<data::Batch> batches{make_rows({1, 2}, 16, shape.model.vocab_size)};
  const auto run = [&](std::int64_t step) {
    const double norm =
        trial.step.run(batches, batches.front().num_targets, step, step, 0.01).grad_norm;
    testing::CombinedMeasures all;
    all.add(trial.measures, 0);
    return std::pair{norm, all.values(trial.measures)};
  };
  EXPECT_FALSE(run(1).second.contains("grad_norm/head")) << "only every 2nd step has norms";
  std::vector<at::Tensor> before;
  for (parallel::ParamId id = 0; id < trial.registry.size(); ++id)
    before.push_back(trial.registry.main(id).clone());

  const auto [norm, values] = run(2);

  double squares = 0;
  const auto weights = norms_of(trial.registry, [&](auto id) { return trial.registry.main(id); });
  const auto updates =
      norms_of(trial.registry, [&](auto id) { return trial.registry.main(id) - before[id]; });
  ASSERT_EQ(weights.size(), layer_names(shape.model.num_layers).size());
  for (const auto& [layer, weight] : weights) {
    EXPECT_NEAR(values.at("weight_norm/" + layer), weight, 1e-12 * weight) << layer;
    EXPECT_NEAR(values.at("update_norm/" + layer), updates.at(layer), 1e-9 * updates.at(layer));
    EXPECT_GT(updates.at(layer), 0) << layer;
    squares += std::pow(values.at("grad_norm/" + layer), 2);
  }
  EXPECT_GT(norm, 10 * shape.optim.clip_norm);
  EXPECT_NEAR(std::sqrt(squares), norm, 1e-12 * norm);
}

}  // namespace
}  // namespace trireme::train
