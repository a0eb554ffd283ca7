#include "train/verify/trial_model.hpp"

#include "core/by_name.hpp"
#include "model/stages/rank_stages.hpp"

namespace trireme {
namespace {

std::unique_ptr<Optimizer> allocate(ParamRegistry& registry, Transformer& model, const Mesh& mesh,
                                    const TrialShape& shape) {
  registry.allocate(mesh, shape.dtypes, shape.device);
  model.prepare();
  registry.initialize(TrialModel::kSeed);
  return make_optimizer(shape.optim, registry);
}

}  // namespace

UpdateFacts facts_of(const TrialShape& shape, const Mesh& mesh, const std::vector<Batch>& batches,
                     std::int64_t step) {
  return update_facts(shape.model, shape.optim, shape.dtypes, mesh,
                      {batches.front().B, batches.front().T,
                       static_cast<std::int64_t>(batches.size()), step, shape.path},
                      shape.lora);
}

TrialModel::TrialModel(Communicator& world, const TrialShape& shape)
    : mesh(world, shape.parallel, shape.node_of_rank),
      model(registry, shape.model,
            rank_stages(shape.model, shape.parallel,
                        shape.seq_len > 0 ? shape.seq_len : shape.model.max_seq_len,
                        mesh.rank(Axis::pp)),
            {shape.path,
             by_name<Recompute>(kRecomputes, shape.parallel.recompute),
             kSeed,
             {mesh.group(Axis::tp), shape.parallel.sequence_parallel, shape.parallel.tp_chunks},
             context_group(mesh),
             shape.lora,
             ExpertGroup(mesh)}),
      objective(registry, model.head_weight(), shape.path, model.tensor()),
      optimizer(allocate(registry, model, mesh, shape)),
      step({model, objective, *optimizer, scaler, mesh, measures}, shape.optim.clip_norm) {}

}  // namespace trireme
