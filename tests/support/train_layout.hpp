#pragma once
#include <ATen/Parallel.h>

#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "comm/thread/thread_world.hpp"
#include "objective/cross_entropy.hpp"
#include "optim/optimizer.hpp"
#include "support/layouts/layout_cases.hpp"
#include "train/step/step.hpp"
#include "train/verify/layout_trial.hpp"
#include "train/verify/trial_model.hpp"

/// A small model that the real Step trains on thread ranks, in any layout and precision.
namespace trireme::testing {

inline constexpr std::int64_t kSamples = 12;  // samples of one update

/// The layout of one update of a Shape. shares[r] is the number of samples of data rank r. Its
/// micro-batches have `micro_batch` samples each; the last one has the rest.
struct Layout {
  std::vector<std::int64_t> shares{kSamples};
  std::int64_t micro_batch = kSamples;
  parallel::ParallelConfig parallel = {};
  ops::Path path = ops::Path::plain;
};

struct Shape {
  const char* preset = "tiny";  // the shape of a Qwen3 block
  bool tied = true;
  double dropout = 0.1;
  double clip_norm = 0;
  std::int64_t hidden_size = 16;
  std::int64_t num_layers = 2;
  std::int64_t num_heads = 4;
  std::int64_t num_kv_heads = 2;
  std::int64_t head_dim = 4;
  std::int64_t intermediate_size = 24;
  std::int64_t vocab = 40;
  std::int64_t length = 12;
  std::int64_t samples = kSamples;  // results of one update
};

struct Training {
  device::ParamDTypes dtypes{at::kDouble, at::kDouble};
  std::int64_t steps = 4;
  double lr = 1e-2;
  bool learned = false;  // calls set_learned_weights
};

using Trace = train::TrialTrace;
using Param = parallel::GatheredParam;

inline model::ModelConfig model_config(const Shape& shape) {
  model::ModelConfig config = model::model_preset(shape.preset);
  config.hidden_size = shape.hidden_size;
  config.num_layers = shape.num_layers;
  config.num_heads = shape.num_heads;
  config.num_kv_heads = shape.num_kv_heads;
  config.head_dim = shape.head_dim;
  config.intermediate_size = shape.intermediate_size;
  config.max_seq_len = shape.length;
  config.tie_embeddings = shape.tied;
  config.dropout = shape.dropout;
  model::resolve(config, shape.vocab);
  return config;
}

/// Returns this rank's micro-batches of the update that starts at global sample `first`.
inline std::vector<data::Batch> share_of(const Layout& layout, const Shape& shape, int rank,
                                         std::int64_t first) {
  const auto at = layout.shares.begin() + rank;
  std::int64_t next = std::accumulate(layout.shares.begin(), at, first);
  const std::int64_t end = next + *at;
  std::vector<data::Batch> batches;
  while (next < end) {
    std::vector<std::int64_t> indices;
    while (next < end && static_cast<std::int64_t>(indices.size()) < layout.micro_batch)
      indices.push_back(next++);
    batches.push_back(train::make_rows(indices, shape.length, shape.vocab));
  }
  return batches;
}

inline std::int64_t targets_of_update(const Shape& shape, std::int64_t first) {
  std::vector<std::int64_t> indices(static_cast<std::size_t>(shape.samples));
  std::iota(indices.begin(), indices.end(), first);
  return train::make_rows(indices, shape.length, shape.vocab).num_targets;
}

inline Trace train_rank(comm::Communicator& world, const Layout& layout, const Shape& shape,
                        const Training& training) {
  at::set_num_threads(1);
  train::TrialPlan plan;
  plan.model = model_config(shape);
  plan.parallel = layout.parallel;
  plan.optim.clip_norm = shape.clip_norm;
  plan.dtypes = training.dtypes;
  plan.path = layout.path;
  plan.steps = training.steps;
  plan.lr = training.lr;
  if (training.learned) plan.prepare = set_learned_weights;
  plan.batches = [&](int rank, std::int64_t step) {
    return share_of(layout, shape, rank, step * shape.samples);
  };
  plan.targets = [&](std::int64_t step) { return targets_of_update(shape, step * shape.samples); };
  return train::run_trial(world, plan);
}

/// Results of all ranks.
inline std::vector<Trace> train(const Layout& layout, const Shape& shape,
                                const Training& training = {}) {
  std::vector<Trace> traces(layout.shares.size() * static_cast<std::size_t>(layout.parallel.tp));
  comm::run_ranks(static_cast<int>(traces.size()), [&](comm::Communicator& world) {
    traces[static_cast<std::size_t>(world.rank())] = train_rank(world, layout, shape, training);
  });
  return traces;
}

}  // namespace trireme::testing
