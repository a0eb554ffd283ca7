#pragma once
#include <memory>
#include <vector>

#include "core/measures.hpp"
#include "objective/cross_entropy.hpp"
#include "optim/optimizer.hpp"
#include "train/cost/update_facts.hpp"
#include "train/step/step.hpp"

namespace trireme {

/// Shape and layout of a trial.
struct TrialShape {
  ModelConfig model;  // resolved
  ParallelConfig parallel = {};
  std::vector<int> node_of_rank = {};  // needed for hierarchical reductions
  OptimConfig optim = {};
  ParamDTypes dtypes{at::kDouble, at::kDouble};
  ops::Path path = ops::Path::plain;
  at::Device device = at::kCPU;
  LoraConfig lora = {};
  std::int64_t seq_len = 0;  // length that balances the stages; 0: model.max_seq_len
};

/// Returns the facts of update `step` (from 1). All of its micro-batches have the same size.
UpdateFacts facts_of(const TrialShape& shape, const Mesh& mesh, const std::vector<Batch>& batches,
                     std::int64_t step);

/// A model with everything that an update needs, without a run. Its weights are random.
struct TrialModel {
  static constexpr std::uint64_t kSeed = 7;

  Mesh mesh;
  ParamRegistry registry;
  Transformer model;
  CrossEntropy objective;
  LossScaler scaler{false};
  Measures measures;
  std::unique_ptr<Optimizer> optimizer;
  Step step;

  /// Collective over `world`, which must outlive this.
  TrialModel(Communicator& world, const TrialShape& shape);
};

}  // namespace trireme
