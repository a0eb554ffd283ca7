#include "train/rl/whole_model.hpp"

#include "parallel/units/gathered.hpp"

namespace trireme::train {
namespace {

parallel::ParamRegistry& without_gradients(parallel::ParamRegistry& registry) {
  registry.freeze();
  return registry;
}

model::TransformerOptions options_of(const WholeModel::Setup& setup, const parallel::Mesh& mesh) {
  model::TransformerOptions options;
  options.path = setup.path;
  options.tensor = {mesh.group(parallel::Axis::tp), /*sequence_parallel=*/false};
  options.lora = setup.lora;
  return options;
}

}  // namespace

WholeModel::WholeModel(const Setup& setup)
    : mesh_(self_, {}),
      transformer_(without_gradients(registry_), setup.model, options_of(setup, mesh_)) {
  registry_.allocate(mesh_, {setup.dtype, setup.dtype}, setup.device);
  transformer_.prepare();
}

void WholeModel::copy_weights(const parallel::ParamRegistry& parts) {
  parallel::copy_whole_weights(parts, registry_);
}

}  // namespace trireme::train
