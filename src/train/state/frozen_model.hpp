#pragma once
#include <functional>
#include <span>

#include "checkpoint/load/load.hpp"
#include "model/stages/stage_forward.hpp"
#include "objective/head.hpp"
#include "parallel/mesh.hpp"
#include "train/state/run_state.hpp"

namespace trireme::train {

/// Loads the weights of a registry, or only its frozen ones, from a checkpoint like load_converted.
/// The checkpoint must hold exactly these weights. Collective over `world`.
void load_weights(parallel::ParamRegistry& registry, StateOf of,
                  const checkpoint::Checkpoint& checkpoint, const parallel::Mesh& mesh,
                  comm::Communicator& world);

/// Runs forward passes through the pipeline stages of a frozen model.
class FrozenStages {
 public:
  /// All arguments must outlive this object. Collective over pp.
  FrozenStages(const model::Transformer& model, const parallel::Mesh& mesh);

  void forward(std::span<const parallel::Microbatch> micro_batches,
               const std::function<void(std::size_t, const at::Tensor&)>& call);

 private:
  const model::Transformer& model_;
  const parallel::Mesh& mesh_;
  parallel::StageP2P links_;
};

/// A model that is only read (a reference or a teacher), on the layout of the trained model. It
/// holds only the weights that it computes with.
class FrozenModel {
 public:
  /// Allocates memory but sets no weights. `mesh` must outlive this object. `config` is resolved;
  /// `stages` are this rank's.
  FrozenModel(const model::ModelConfig& config, const model::ModelStages& stages,
              const model::TransformerOptions& options, const parallel::Mesh& mesh,
              at::ScalarType dtype, at::Device device);

  /// Loads all weights like load_converted. Collective over `world`.
  void load(const checkpoint::Checkpoint& checkpoint, comm::Communicator& world);

  /// Returns the hidden states [B, T, D] without dropout. The model must not be split into stages.
  [[nodiscard]] at::Tensor hidden(const parallel::Microbatch& batch) const;

  [[nodiscard]] const model::Transformer& transformer() const { return transformer_; }

  [[nodiscard]] objective::Head head(ops::Path path) const;

  [[nodiscard]] const model::ModelConfig& config() const { return transformer_.config(); }

  [[nodiscard]] at::Device device() const { return registry_.device(); }

 private:
  const parallel::Mesh& mesh_;
  mutable parallel::ParamRegistry registry_;  // gathers weights when they are read
  model::Transformer transformer_;
};

}  // namespace trireme::train
