#pragma once
#include <functional>
#include <span>

#include "checkpoint/load/load.hpp"
#include "model/stages/stage_forward.hpp"
#include "objective/head.hpp"
#include "parallel/mesh.hpp"
#include "train/state/run_state.hpp"

namespace trireme {

/// Loads the weights of a registry, or only its frozen ones, from a checkpoint like load_converted.
/// The checkpoint must hold exactly these weights. Collective over `world`.
void load_weights(ParamRegistry& registry, StateOf of, const Checkpoint& checkpoint,
                  const Mesh& mesh, Communicator& world);

/// Runs forward passes through the pipeline stages of a frozen model.
class StagesBeside {
 public:
  /// All arguments must outlive this object. Collective over pp.
  StagesBeside(const Transformer& model, const Mesh& mesh);

  void forward(std::span<const Microbatch> micro_batches,
               const std::function<void(std::size_t, const at::Tensor&)>& call);

 private:
  const Transformer& model_;
  const Mesh& mesh_;
  StageLinks links_;
};

/// A model that is only read (a reference or a teacher), on the layout of the trained model. It
/// holds only the weights that it computes with.
class FrozenModel {
 public:
  /// Allocates memory but sets no weights. `mesh` must outlive this object. `config` is resolved;
  /// `stages` are this rank's.
  FrozenModel(const ModelConfig& config, const ModelStages& stages,
              const TransformerOptions& options, const Mesh& mesh, at::ScalarType dtype,
              at::Device device);

  /// Loads all weights like load_converted. Collective over `world`.
  void load(const Checkpoint& checkpoint, Communicator& world);

  /// Returns the hidden states [B, T, D] without dropout. The model must not be split into stages.
  [[nodiscard]] at::Tensor hidden(const Microbatch& batch) const;

  [[nodiscard]] const Transformer& transformer() const { return transformer_; }

  [[nodiscard]] Head head(ops::Path path) const;

  [[nodiscard]] const ModelConfig& config() const { return transformer_.config(); }

  [[nodiscard]] at::Device device() const { return registry_.device(); }

 private:
  const Mesh& mesh_;
  mutable ParamRegistry registry_;  // gathers weights when they are read
  Transformer transformer_;
};

}  // namespace trireme
