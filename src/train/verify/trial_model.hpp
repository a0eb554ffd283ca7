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

/// Returns one row per sample: documents of random lengths, then padding. Every fifth sample
/// consists of one-token documents and has no target. The result depends only on the arguments.
Batch make_rows(const std::vector<std::int64_t>& indices, std::int64_t length,
                std::int64_t vocab_size);

}  // namespace trireme
