#include "train/verify/layout_trial.hpp"

#include <optional>

#include "comm/agree.hpp"
#include "parallel/collectives.hpp"
#include "train/audit/update_count.hpp"

namespace trireme::train {
namespace {

double sum_over(comm::Communicator& group, double value, at::Device device) {
  const at::Tensor sum = at::full({1}, value, at::kDouble).to(device);
  parallel::all_reduce(group, sum, comm::ReduceOp::sum, "loss")->wait();
  return sum.item<double>();
}

/// Returns the parameters of the whole model, including those of other ranks.
std::vector<parallel::GatheredParam> params_of(const TrialShape& shape) {
  parallel::ParamRegistry registry;
  const model::Transformer model(registry, shape.model, {.lora = shape.lora});
  return parallel::gathered_params(registry);
}

/// Returns the differences between counts and formulas of all ranks on rank 0.
std::string audit(comm::Communicator& world, const UpdateFacts& facts, const UpdateCount& count) {
  const std::string mine =
      differences(count.collectives(), collectives_formula(facts, world.rank())) +
      differences(count.memory(), memory_formula(facts, world.rank()));
  std::string all;
  for (const std::string& one : comm::gather_texts(world, mine)) all += one;
  return all;
}

/// Returns the recorded norms of layers of all ranks, and resets the measures. Collective.
std::vector<double> layer_norms(comm::Communicator& world, Measures& measures) {
  std::vector<double> sums;
  std::vector<double> maxima;
  const std::vector<Measures::Id> packed = measures.pack(sums, maxima, world.rank());
  world
      .all_reduce({.input = sums.data(),
                   .output = sums.data(),
                   .count = sums.size(),
                   .dtype = DType::f64,
                   .op = comm::ReduceOp::sum,
                   .tag = "layer norms"})
      ->wait();
  std::span<const double> all_sums = sums;
  std::span<const double> own_maxima = maxima;  // only norms are read
  std::vector<double> norms;
  for (const Metric& metric : measures.combine(packed, all_sums, own_maxima, 1, world.size()))
    if (metric.name.find('/') != std::string::npos) norms.push_back(metric.value);
  return norms;
}

}  // namespace

TrialTrace run_trial(comm::Communicator& world, const TrialPlan& plan) {
  TrialShape shape = plan;
  shape.layer_norms_every = 1;
  TrialModel trial(world, shape);
  parallel::ParamRegistry& registry = trial.registry;
  plan.prepare(registry);
  TrialTrace trace;
  const parallel::Gathering gathering(registry, params_of(plan), world);
  trace.params = gathering.params();
  trace.first_weights = gathering.weights();
  for (std::int64_t i = 0; i < plan.steps; ++i) {
    const std::int64_t targets = plan.targets(i);
    const std::vector<data::Batch> batches = plan.batches(trial.mesh.rank(parallel::Axis::dp), i);
    std::optional<UpdateCount> count;
    if (plan.audit && i + 1 == plan.steps) count.emplace(trial.step);
    const UpdateResult result = trial.step.run(batches, targets, i + 1, i + 1, plan.lr);
    if (count) {
      count->end(result);
      trace.audit = audit(world, facts_of(plan, trial.mesh, batches, i + 1), *count);
    }
    trace.losses.push_back(
        sum_over(trial.mesh.group(parallel::Axis::data), result.loss_sum, plan.device) /
        static_cast<double>(targets));
    trace.norms.push_back(result.grad_norm);
    trace.layer_norms.push_back(layer_norms(world, trial.measures));
    trace.grads.push_back(gathering.grads());
  }
  trial.step.average_replicas();
  trace.weights = gathering.weights();
  for (const optim::OptimizerSlot& slot : trial.optimizer->slots()) {
    trace.moments.push_back(
        gathering.trained([&](std::size_t unit) { return registry.part_of(slot.flat, unit); }));
  }
  return trace;
}

}  // namespace trireme::train
