#pragma once
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/format/state.hpp"
#include "core/measures.hpp"
#include "data/batch.hpp"
#include "model/transformer.hpp"
#include "objective/value.hpp"
#include "optim/loss_scaler.hpp"
#include "optim/optimizer.hpp"
#include "train/state/run_state.hpp"
#include "train/step/step.hpp"

namespace trireme::train {

/// Tensors of a critic in a checkpoint: this prefix, then the name that a model uses.
inline constexpr const char* kCriticPrefix = "critic/";

/// A second model that a run trains: a transformer of the same shape as the policy, with a value
/// head, an optimizer and gradients of its own. It has no adapters.
class Critic {
 public:
  struct Setup {
    const model::ModelConfig& model;
    const model::ModelStages& stages;
    const model::TransformerOptions& options;
    const optim::OptimConfig& optim;
    const parallel::Mesh& mesh;
    device::ParamDTypes dtypes;
    at::Device device = at::kCPU;
    objective::ValueConfig value{};
    double lr = 0;                 // peak learning rate; its schedule is that of `optim`
    std::int64_t total_steps = 0;  // train.steps
  };

  /// Allocates memory but sets no weights. The mesh must outlive this object.
  explicit Critic(const Setup& setup);

  /// Computes the values of micro-batches on the layout of the critic. On the ranks with the last
  /// stage, `use` receives the number of each micro-batch and the values [n] fp64 of its targets on
  /// this rank, in host memory. Collective over the world.
  void values(std::span<const parallel::Microbatch> batches,
              const std::function<void(std::size_t, const at::Tensor&)>& use);

  /// Keeps the micro-batches of the next update; `update_terms` is that of Step::run().
  void set_batches(std::vector<data::Batch> batches, std::int64_t update_terms);

  /// Runs one update with the batches of set_batches(); the arguments are those of Step::run().
  /// Throws Error(numeric) on all ranks if a loss or gradient is not finite. Collective over the
  /// world.
  UpdateResult update(std::int64_t step, std::int64_t update);

  [[nodiscard]] parallel::ParamRegistry& registry() { return registry_; }

  [[nodiscard]] StateView& state() { return state_; }

  /// Returns the tensors of state() with the names of a checkpoint.
  [[nodiscard]] std::vector<checkpoint::StateTensor> saved_tensors() const;

 private:
  Measures measures_;  // measures of the critic's step; the run does not report them
  parallel::ParamRegistry registry_;
  model::Transformer transformer_;
  objective::ValueObjective objective_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  optim::LossScaler scaler_;
  Step step_;
  StateView state_;
  optim::OptimConfig optim_;
  double lr_;
  std::int64_t total_steps_;
  std::vector<data::Batch> batches_;  // micro-batches of the next update
  std::int64_t update_terms_ = 0;
};

}  // namespace trireme::train
