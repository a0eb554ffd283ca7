#include "train/verify/layout_trial.hpp"

#include "core/by_name.hpp"
#include "objective/cross_entropy.hpp"
#include "optim/optimizer.hpp"
#include "parallel/collectives.hpp"
#include "train/step/step.hpp"

namespace trireme {
namespace {

constexpr std::uint64_t kSeed = 7;

double sum_over(Communicator& group, double value, at::Device device) {
  const at::Tensor sum = at::full({1}, value, at::kDouble).to(device);
  all_reduce(group, sum, ReduceOp::sum, "loss")->wait();
  return sum.item<double>();
}

}  // namespace

TrialTrace run_trial(Communicator& world, const TrialPlan& plan) {
  const Mesh mesh(world, plan.parallel, plan.node_of_rank);
  ParamRegistry registry;
  Transformer model(registry, plan.model, ModelPart::whole(plan.model),
                    {plan.path,
                     by_name<Recompute>(kRecomputes, plan.parallel.recompute),
                     kSeed,
                     {mesh.group(Axis::tp), plan.parallel.sequence_parallel},
                     context_group(mesh)});
  registry.allocate(mesh, plan.dtypes, plan.device);
  model.prepare();
  registry.initialize(kSeed);
  plan.prepare(registry);
  const auto optimizer = make_optimizer(plan.optim, registry);
  LossScaler scaler(false);
  CrossEntropy objective(registry, model.head_weight(), plan.path, model.tensor());
  Measures measures;
  Step step({model, objective, *optimizer, scaler, mesh, measures}, plan.optim.clip_norm);
  TrialTrace trace;
  trace.params = gathered_params(registry);
  trace.first_weights = gathered_weights(registry, world);
  for (std::int64_t i = 0; i < plan.steps; ++i) {
    const std::int64_t targets = plan.targets(i);
    const UpdateResult result =
        step.run(plan.batches(mesh.rank(Axis::dp), i), targets, i + 1, i + 1, plan.lr);
    trace.losses.push_back(sum_over(mesh.group(Axis::data), result.loss_sum, plan.device) /
                           static_cast<double>(targets));
    trace.norms.push_back(result.grad_norm);
    trace.grads.push_back(gathered_grads(registry, world));
  }
  step.average_copies();
  trace.weights = gathered_weights(registry, world);
  for (const OptimizerSlot& slot : optimizer->slots()) {
    trace.moments.push_back(gathered(
        registry, world, [&](std::size_t unit) { return registry.part_of(slot.flat, unit); }));
  }
  return trace;
}

}  // namespace trireme
