#include "train/state/frozen_model.hpp"

#include "train/state/load_converted.hpp"

namespace trireme {
namespace {

/// Whatever is declared in it from here on.
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

FrozenModel::FrozenModel(const ModelConfig& config, const TransformerOptions& options,
                         const Mesh& mesh, at::ScalarType dtype, at::Device device)
    : mesh_(mesh), transformer_(frozen(registry_), config, options) {
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
