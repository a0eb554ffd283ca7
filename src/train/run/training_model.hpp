#pragma once
#include "train/run/training_run.hpp"

namespace trireme {

/// What is built from the configuration once it is resolved, in the order of its dependencies.
struct TrainingRun::Model {
  std::unique_ptr<Communicator> device_world;  // null on a CPU: the control world serves
  Mesh mesh;
  ParamRegistry registry;
  Transformer transformer;
  std::unique_ptr<Objective> objective;
  std::unique_ptr<Optimizer> optimizer;
  LossScaler scaler;
  Step step;
  StateView state;

  Model(const RunConfig& config, const Task& task, const RunRanks& ranks, at::Device device,
        ParamDTypes dtypes, Measures& measures)
      : device_world(device.is_cuda()
                         ? make_world("nccl", ranks.launch, ranks.options, ranks.device_backends)
                         : nullptr),
        mesh(device_world ? *device_world : ranks.world, config.parallel),
        transformer(
            registry, config.model, ModelPart::whole(config.model),
            {config.train.fused_ops ? ops::Path::fast : ops::Path::plain,
             config.parallel.recompute == "full", static_cast<std::uint64_t>(config.train.seed)}),
        objective(task.make_objective(config, transformer)),
        optimizer(
            (registry.allocate(mesh, dtypes, device), make_optimizer(config.optim, registry))),
        scaler(config.train.precision == "fp16"),
        step({transformer, *objective, *optimizer, scaler, mesh.group(Axis::data), measures},
             {config.optim.clip_norm, config.parallel.bucket_mb}),
        state(registry, *optimizer, mesh.rank(Axis::data), mesh.size(Axis::data)) {
    transformer.prepare();
  }
};

}  // namespace trireme
