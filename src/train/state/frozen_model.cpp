#include "train/state/frozen_model.hpp"

#include "parallel/pipeline/stage_plan.hpp"

namespace trireme {
namespace {

/// Marks all parameters that are declared later as frozen.
ParamRegistry& frozen(ParamRegistry& registry) {
  registry.freeze();
  return registry;
}

}  // namespace

void load_weights(ParamRegistry& registry, StateOf of, const Checkpoint& checkpoint,
                  const Mesh& mesh, Communicator& world) {
  StateView view(registry, of);
  StateDict state{view.tensors(), {}, {}};
  load_converted(checkpoint, state, world);
  view.spread(mesh);
  registry.refresh_weights();
}

StagesBeside::StagesBeside(const Transformer& model, const Mesh& mesh)
    : model_(model), mesh_(mesh), links_(mesh.group(Axis::pp), stage_placement(mesh.config())) {}

void StagesBeside::forward(std::span<const Microbatch> micro_batches,
                           const std::function<void(std::size_t, const at::Tensor&)>& call) {
  const auto count = static_cast<int>(micro_batches.size());
  forward_stages(model_, links_, mesh_.rank(Axis::pp), stage_schedule(mesh_.config(), count),
                 micro_batches, call);
}

FrozenModel::FrozenModel(const ModelConfig& config, const ModelStages& stages,
                         const TransformerOptions& options, const Mesh& mesh, at::ScalarType dtype,
                         at::Device device)
    : mesh_(mesh), transformer_(frozen(registry_), config, stages, options) {
  registry_.allocate(mesh, {dtype, dtype}, device);
  transformer_.prepare();
}

at::Tensor FrozenModel::hidden(const Microbatch& batch) const {
  Microbatch read_only = batch;
  read_only.training = false;
  return transformer_.hidden(read_only);
}

Head FrozenModel::head(ops::Path path) const {
  return head_of(registry_, transformer_.head_weight(), transformer_.tensor(), path);
}

void FrozenModel::load(const Checkpoint& checkpoint, Communicator& world) {
  load_weights(registry_, StateOf::all, checkpoint, mesh_, world);
}

}  // namespace trireme
