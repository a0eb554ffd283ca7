#include "train/step/layer_norms.hpp"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <mutex>
#include <numeric>

#include "comm/self/self_communicator.hpp"
#include "comm/thread/thread_world.hpp"
#include "support/combined_measures.hpp"
#include "train/step/bucket_counts.hpp"
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

/// Returns the bucket of a value by comparing it with the borders.
std::size_t bucket_of(double value) {
  using Buckets = ExponentialBuckets;
  const double magnitude = std::abs(value);
  int m = 0;
  while (m < Buckets::kPerSign && magnitude >= Buckets::magnitude(m)) ++m;
  return static_cast<std::size_t>(Buckets::kPerSign + (value < 0 ? -m : m));
}

TEST(LayerHistograms, EachValueIsInTheBucketOfItsBorders) {
  using Buckets = ExponentialBuckets;
  std::vector<double> values{0,    -0.0,  1,    -1,      1.25,  1.2499999, -1.75, 63.9,
                             1e30, -1e30, 1e-9, -1.2e-9, 1e-30, 3e-5,      -7e-3, 0.1};
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor tensor = at::tensor(values, at::kDouble).to(dtype);
    const at::Tensor counts = at::zeros({static_cast<std::int64_t>(Buckets::kNum)}, at::kLong);
    count_in_buckets(tensor, 0.5, counts);
    std::vector<std::int64_t> expected(Buckets::kNum);
    for (std::int64_t i = 0; i < tensor.numel(); ++i)
      ++expected[bucket_of(tensor[i].to(at::kDouble).item<double>() / 2)];
    const auto* count = counts.const_data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < Buckets::kNum; ++i)
      EXPECT_EQ(count[i], expected[i]) << dtype << " from " << Buckets::border(i);
  }
  EXPECT_EQ(Buckets::border(bucket_of(1.3)), 1.25);
  EXPECT_EQ(Buckets::border(bucket_of(1.3) + 1), 1.5);
  EXPECT_EQ(Buckets::border(bucket_of(-1.3)), -1.5);
  EXPECT_EQ(Buckets::border(bucket_of(-1.3) + 1), -1.25);
  EXPECT_EQ(Buckets::border(bucket_of(0)), -Buckets::border(bucket_of(0) + 1));
}

TEST(LayerHistograms, AreTheSameWithOnlyAten) {
  at::manual_seed(1);
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble, at::kBFloat16}) {
    // Magnitudes from 2^-60 to 2^60 and all special values; more values than a thread has.
    at::Tensor values = at::randn({600'001}, at::kDouble).mul(60).exp2().mul(at::randn({600'001}));
    const double infinity = std::numeric_limits<double>::infinity();
    values.narrow(0, 0, 5).copy_(
        at::tensor({infinity, -infinity, std::nan(""), -std::nan(""), -0.0}, at::kDouble));
    values = values.to(dtype);
    for (const std::int64_t count : {7, 600'001}) {
      for (const double factor : {1.0, 0.25}) {
        const at::Tensor fast = at::zeros({ExponentialBuckets::kNum}, at::kLong);
        const at::Tensor plain = at::zeros_like(fast);

        count_in_buckets(values.narrow(0, 0, count), factor, fast);
        count_in_buckets_plain(values.narrow(0, 0, count), factor, plain);

        EXPECT_TRUE(fast.equal(plain)) << dtype << " " << count << " " << factor;
        EXPECT_EQ(fast.sum().item<std::int64_t>(), count);
      }
    }
  }
}

/// Returns the histograms of the second update with a layout. Ranks are threads.
std::map<std::string, std::vector<double>> histograms_of(const parallel::ParallelConfig& parallel,
                                                         int ranks, int data_ranks) {
  TrialShape shape;
  shape.model = small_model_like(model::model_preset("tiny"), {});
  shape.parallel = parallel;
  shape.layer_norms_every = 2;
  shape.layer_histograms = true;
  std::map<std::string, std::vector<double>> result;
  std::mutex mutex;
  testing::CombinedMeasures all;
  comm::run_ranks(ranks, [&](comm::Communicator& world) {
    at::set_num_threads(1);
    TrialModel trial(world, shape);
    trial.registry.initialize(TrialModel::kSeed);
    trial.registry.refresh_weights();
    std::int64_t targets = 0;
    std::vector<data::Batch> own;
    for (const std::int64_t sample : {1, 2}) {
      const data::Batch batch = make_rows({sample}, 16, shape.model.vocab_size);
      targets += batch.num_targets;
      if (sample % data_ranks == trial.mesh.rank(parallel::Axis::dp)) own.push_back(batch);
    }
    for (const std::int64_t step : {1, 2}) {
      (void)trial.step.run(own, targets, step, step, 0.01);
      const std::lock_guard lock(mutex);
      if (step == 2) {
        all.add(trial.measures, world.rank());
      } else {
        testing::CombinedMeasures().add(trial.measures, world.rank());
      }
    }
    world.barrier();
    if (world.rank() != 0) return;
    for (const Metric& metric : all.metrics(trial.measures))
      if (metric.form == Metric::Form::histogram) result[metric.name] = metric.counts;
  });
  return result;
}

TEST(LayerHistograms, AreEqualOnEveryLayoutInFp64) {
  const auto one = histograms_of({}, 1, 1);
  ASSERT_TRUE(one.contains("weights/layer_00") && one.contains("gradients/head"));
  double elements = 0;
  for (const auto& [name, counts] : one)
    if (name.starts_with("weights/"))
      elements += std::accumulate(counts.begin(), counts.end(), 0.0);
  const auto shape = small_model_like(model::model_preset("tiny"), {});
  EXPECT_EQ(elements, static_cast<double>(shape.num_parameters()));

  parallel::ParallelConfig config;
  config.zero = 3;
  EXPECT_EQ(histograms_of(config, 2, 2), one) << "ZeRO";
  config = {};
  config.tp = 2;
  EXPECT_EQ(histograms_of(config, 2, 1), one) << "tensor parallelism";
  config.pp = 2;
  EXPECT_EQ(histograms_of(config, 4, 1), one) << "tensor and pipeline parallelism";
}

}  // namespace
}  // namespace trireme::train
