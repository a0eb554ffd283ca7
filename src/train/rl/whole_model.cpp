#include "train/rl/whole_model.hpp"

#include <ATen/ATen.h>

#include "device/precision.hpp"
#include "parallel/units/gathered.hpp"

namespace trireme::train {
namespace {

parallel::ParamRegistry& without_gradients(parallel::ParamRegistry& registry) {
  registry.freeze();
  return registry;
}

model::TransformerOptions options_of(const RunConfig& config, const parallel::Mesh& mesh) {
  model::TransformerOptions options;
  options.path = ops::path_of(config.train.fused_ops);
  options.tensor = {mesh.group(parallel::Axis::tp), /*sequence_parallel=*/false};
  options.lora = config.lora;
  return options;
}

}  // namespace

WholeModel::WholeModel(const RunConfig& config, at::Device device)
    : mesh_(self_, {}),
      transformer_(without_gradients(registry_), config.model, options_of(config, mesh_)) {
  const at::ScalarType dtype = device::precision_dtypes(config.train.precision).compute;
  registry_.allocate(mesh_, {dtype, dtype}, device);
  transformer_.prepare();
}

void WholeModel::copy_weights(const parallel::ParamRegistry& parts) {
  const parallel::Gathering gathering(parts, parallel::gathered_params(registry_),
                                      parts.mesh().world());
  const at::Tensor all = gathering.weights();
  for (parallel::ParamId id = 0; id < registry_.size(); ++id)
    registry_.main(id).copy_(gathering.params()[id].of(all).view(registry_.spec(id).shape));
  registry_.refresh_weights();
}

}  // namespace trireme::train
