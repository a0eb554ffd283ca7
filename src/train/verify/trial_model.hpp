#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "core/measures.hpp"
#include "data/batch.hpp"
#include "objective/cross_entropy.hpp"
#include "optim/optimizer.hpp"
#include "train/cost/update_facts.hpp"
#include "train/step/step.hpp"

namespace trireme::train {

/// Shape and layout of a trial.
struct TrialShape {
  model::ModelConfig model;  // resolved
  parallel::ParallelConfig parallel = {};
  std::vector<int> node_of_rank = {};  // needed for hierarchical reductions
  optim::OptimConfig optim = {};
  device::ParamDTypes dtypes{at::kDouble, at::kDouble};
  ops::Path path = ops::Path::plain;
  at::Device device = at::kCPU;
  model::LoraConfig lora = {};
  model::Fp8Mode fp8 = model::Fp8Mode::off;
  std::int64_t layer_norms_every = 0;  // see StepParts
  bool layer_histograms = false;       // see StepParts
  GraphUse graphs = {};                // see StepParts
  std::int64_t seq_len = 0;            // length that balances the stages; 0: model.max_seq_len
};

/// Returns the facts of update `step` (from 1). All of its micro-batches have the same size.
UpdateFacts facts_of(const TrialShape& shape, const parallel::Mesh& mesh,
                     const std::vector<data::Batch>& batches, std::int64_t step);

/// A model with everything that an update needs, without a run. Its weights are random.
struct TrialModel {
  static constexpr std::uint64_t kSeed = 7;

  parallel::Mesh mesh;
  parallel::ParamRegistry registry;
  model::Transformer model;
  objective::CrossEntropy objective;
  optim::LossScaler scaler{false};
  Measures measures;
  std::unique_ptr<optim::Optimizer> optimizer;
  Step step;

  /// Collective over `world`, which must outlive this.
  TrialModel(comm::Communicator& world, const TrialShape& shape);
};

/// Returns one row per sample: documents of random lengths, then padding. Every fifth sample
/// consists of one-token documents and has no target. The result depends only on the arguments.
data::Batch make_rows(const std::vector<std::int64_t>& indices, std::int64_t length,
                      std::int64_t vocab_size);

}  // namespace trireme::train
