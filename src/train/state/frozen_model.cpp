#include "train/state/frozen_model.hpp"

#include "parallel/pipeline/stage_plan.hpp"

namespace trireme::train {
namespace {

/// Marks all parameters that are declared later as frozen.
parallel::ParamRegistry& frozen(parallel::ParamRegistry& registry) {
  registry.freeze();
  return registry;
}

}  // namespace

void load_weights(parallel::ParamRegistry& registry, StateOf of,
                  const checkpoint::Checkpoint& checkpoint, const parallel::Mesh& mesh,
                  comm::Communicator& world) {
  StateView view(registry, of);
  checkpoint::StateDict state{view.tensors(), {}, {}};
  load_converted(checkpoint, state, world);
  view.spread(mesh);
  registry.refresh_weights();
}

FrozenStages::FrozenStages(const model::Transformer& model, const parallel::Mesh& mesh)
    : model_(model),
      mesh_(mesh),
      links_(mesh.group(parallel::Axis::pp), parallel::stage_placement(mesh.config())) {}

void FrozenStages::forward(std::span<const parallel::Microbatch> micro_batches,
                           const std::function<void(std::size_t, const at::Tensor&)>& call) {
  const auto count = static_cast<int>(micro_batches.size());
  model::forward_stages(model_, links_, mesh_.rank(parallel::Axis::pp),
                        parallel::stage_schedule(mesh_.config(), count), micro_batches, call);
}

FrozenModel::FrozenModel(const model::ModelConfig& config, const model::ModelStages& stages,
                         const model::TransformerOptions& options, const parallel::Mesh& mesh,
                         at::ScalarType dtype, at::Device device)
    : mesh_(mesh), transformer_(frozen(registry_), config, stages, options) {
  registry_.allocate(mesh, {dtype, dtype}, device);
  transformer_.prepare();
}

at::Tensor FrozenModel::hidden(const parallel::Microbatch& batch) const {
  parallel::Microbatch read_only = batch;
  read_only.training = false;
  return transformer_.hidden(read_only);
}

objective::Head FrozenModel::head(ops::Path path) const {
  return objective::head_of(registry_, transformer_.head_weight(), transformer_.tensor(), path);
}

void FrozenModel::load(const checkpoint::Checkpoint& checkpoint, comm::Communicator& world) {
  load_weights(registry_, StateOf::all, checkpoint, mesh_, world);
}

}  // namespace trireme::train
