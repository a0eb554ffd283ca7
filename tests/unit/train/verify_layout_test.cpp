#include "train/verify/verify_layout.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include "comm/thread/thread_world.hpp"

namespace trireme::train {
namespace {

/// Returns the trace of two steps of a model with one parameter of three elements. The gradient of
/// the last element is a rounding error.
TrialTrace trace_of(double rounding) {
  TrialTrace trace;
  trace.params = {{"bias", 0, 3}};
  trace.losses = {1, 1};
  trace.norms = {1, 1};
  trace.layer_norms = {{1}, {1}};
  for (int step = 0; step < 2; ++step)
    trace.grads.push_back(at::tensor({0.5, 0.0, rounding}, at::kDouble));
  trace.weights = at::tensor({0.25, 1.0, rounding}, at::kDouble);
  trace.moments = {at::tensor({0.125, 0.0, rounding}, at::kDouble)};
  return trace;
}

TEST(VerifyLayout, WeightsWithTinyGradientsAreExcluded) {
  const LayoutComparison comparison = compare_trials(trace_of(1e-17), trace_of(-1e-17));

  EXPECT_TRUE(comparison.equal());
  EXPECT_EQ(comparison.num_excluded, 1);
}

TEST(VerifyLayout, OtherWeightsAreCompared) {
  for (const std::int64_t element : {0, 1}) {  // the gradient of element 1 is exactly 0
    TrialTrace other = trace_of(1e-17);
    other.weights[element] += 1e-6;
    EXPECT_FALSE(compare_trials(other, trace_of(1e-17)).equal()) << element;
    other = trace_of(1e-17);
    other.moments[0][element] += 1e-6;
    EXPECT_FALSE(compare_trials(other, trace_of(1e-17)).equal()) << element;
  }
}

TEST(VerifyLayout, AGradientThatOneStepHasIsCompared) {
  TrialTrace other = trace_of(1e-17);
  other.grads[1][2] = 1e-5;
  const LayoutComparison comparison = compare_trials(other, trace_of(1e-17));

  EXPECT_FALSE(comparison.equal());
  EXPECT_EQ(comparison.num_excluded, 0);
}

TEST(VerifyLayout, NormsOfLayersAreComparedUnlessRoundingErrorsMovedWeights) {
  TrialTrace other = trace_of(1e-17);
  other.layer_norms[1][0] = 1.1;
  EXPECT_FALSE(compare_trials(other, trace_of(1e-17)).equal());
  other.weights[2] = 0.01;
  EXPECT_TRUE(compare_trials(other, trace_of(1e-17)).equal());
}

TEST(VerifyLayout, PresetsAreEqualWithEveryOptimizer) {
  RunConfig config;
  config.parallel.tp = 2;
  for (const char* preset : {"gpt2-124m", "nanochat", "nanogpt-11"}) {
    config.model = model::model_preset(preset);
    config.model.num_heads = config.model.num_kv_heads = 4;
    const bool has_key_bias_without_rope = config.model.qkv_bias;
    for (const char* optimizer : {"adamw", "lion", "muon", "normuon", "sgd"}) {
      config.optim = optim::optimizer_defaults(optimizer);
      comm::run_ranks(2, [&](comm::Communicator& world) {
        at::set_num_threads(1);
        const LayoutComparison comparison = verify_layout(world, config, 3, at::kCPU);
        if (world.rank() != 0) return;
        EXPECT_TRUE(comparison.equal())
            << preset << ", " << optimizer << ": weights " << comparison.weight_rel << ", norm "
            << comparison.norm_rel << ", gradients " << comparison.grad_rel;
        if (has_key_bias_without_rope) {
          EXPECT_GT(comparison.num_excluded, 0) << optimizer;
        }
      });
    }
  }
}

}  // namespace
}  // namespace trireme::train
