#pragma once
#include <functional>
#include <span>

#include "checkpoint/load/load.hpp"
#include "model/stages/stage_forward.hpp"
#include "objective/head.hpp"
#include "parallel/mesh.hpp"
#include "train/state/run_state.hpp"

namespace trireme {

/// Collective over `world`: sets the weights of a registry, all or the frozen ones, from a checkpoint
/// that has them and no other, as load_converted.
void load_weights(ParamRegistry& registry, StateOf of, const Checkpoint& checkpoint,
                  const Mesh& mesh, Communicator& world);

/// Forward passes through the stages of a model that is read, not trained, beside a pipeline's.
class StagesBeside {
 public:
  /// Collective over the ranks of pp; all outlive this.
  StagesBeside(const Transformer& model, const Mesh& mesh);

  /// As forward_stages.
  void forward(std::span<const Microbatch> micro_batches,
               const std::function<void(std::size_t, const at::Tensor&)>& call);

 private:
  const Transformer& model_;
  const Mesh& mesh_;
  StageLinks links_;
};

/// A model that is read and never trained (a reference, a teacher), on the layout of the one beside
/// it: the weights that it computes with and nothing else.
class FrozenModel {
 public:
  /// Allocates; no weight is set. `mesh` must outlive this. `config`: resolved; `stages`: this rank's.
  FrozenModel(const ModelConfig& config, const ModelStages& stages,
              const TransformerOptions& options, const Mesh& mesh, at::ScalarType dtype,
              at::Device device);

  /// Collective over `world`, as load_converted.
  void load(const Checkpoint& checkpoint, Communicator& world);

  /// Hidden states [B, T, D], without dropout. Of a whole model.
  [[nodiscard]] at::Tensor hidden(const Microbatch& batch) const;

  [[nodiscard]] const Transformer& transformer() const { return transformer_; }

  [[nodiscard]] Head head(ops::Path path) const;

  [[nodiscard]] const ModelConfig& config() const { return transformer_.config(); }

  [[nodiscard]] at::Device device() const { return registry_.device(); }

 private:
  const Mesh& mesh_;
  mutable ParamRegistry registry_;  // gathers what it is asked for
  Transformer transformer_;
};

}  // namespace trireme
