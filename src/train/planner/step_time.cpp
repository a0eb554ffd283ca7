#include "train/planner/step_time.hpp"

#include <algorithm>

#include "model/stages/rank_stages.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "pipeline/simulate.hpp"
#include "train/cost/matrix_cost.hpp"

namespace trireme::planner {
namespace {

constexpr int kSteadyRounds = 4;  // rounds of p micro batches to simulate; later ones cost the same
constexpr double kHostBytesPerS = 20e9;  // between device and host memory

void add_tables(const train::UpdateFacts& facts, const ActionCosts& costs,
                const model::StageRange& stage, ActionCost& cost, train::Elements& weights) {
  const bool sharded = facts.shards() > 1 && facts.parallel.zero >= 2;
  const double table = costs.table_weights();
  const double leave = sharded ? costs.reduce_s(table, costs.data_group()) : 0;
  const double gather =
      sharded && facts.parallel.zero == 3 ? costs.gather_weights_s(table, costs.data_group()) : 0;
  if (stage.has_embedding) {
    cost.add(costs.embedding());
    cost.forward.dp += gather;  // not hidden, at the start of a pass
    cost.weight_grad.dp += leave;
    weights.dense += table;
    if (facts.model.learned_positions())
      weights.dense += static_cast<double>(facts.model.max_seq_len * facts.model.hidden_size);
  }
  if (!stage.has_head) return;
  cost.add(costs.head());
  cost.forward.dp += std::max(0.0, gather + leave - costs.head().forward.compute);
  if (!facts.model.tie_embeddings || !stage.has_embedding) weights.dense += table;
}

/// Returns the exposed time of gradient reductions and weight gathers per optimizer step (ZeRO 0 to
/// 2). They overlap with the last backward and the first forward pass, except for the last bucket
/// and the first unit. With parallel.local_steps = K, weights and optimizer state are averaged after
/// every K-th step instead, gradients are reduced over cp only, and nothing overlaps.
double exposed_over_data(const train::UpdateFacts& facts, const ActionCosts& costs,
                         const ActionCost& passes, const train::Elements& weights, bool hides) {
  if (facts.data_ranks() == 1 || (facts.shards() > 1 && facts.parallel.zero == 3)) return 0;
  const auto both = [&](auto&& seconds) {
    return seconds(weights.dense, costs.data_group()) +
           (weights.experts > 0 ? seconds(weights.experts, costs.expert_group()) : 0);
  };
  if (facts.has_local_steps()) {
    const double tensors = 1 + static_cast<double>(facts.slots());
    const double average = costs.reduce_s(weights.dense * tensors, costs.data_group());
    const double over_cp =
        facts.parallel.cp > 1 ? costs.reduce_s(weights.dense, costs.context_group()) : 0;
    return over_cp + average / static_cast<double>(facts.parallel.local_steps);
  }
  double exposed = 0;
  const auto main = static_cast<double>(facts.master_size());
  const double bytes = std::max(1.0, (weights.dense + weights.experts) * main);
  if (facts.parallel.zero < 2 || facts.shards() == 1) {
    const double sum = both([&](double n, GroupShape g) { return costs.reduce_s(n, g); });
    const auto bucket =
        static_cast<double>(parallel::bucket_bytes(facts.parallel, facts.data_ranks()));
    const double last = bucket > 0 ? std::min(1.0, bucket / bytes) : 1;
    const double beside = hides ? passes.backward_s() * (1 - last) : 0;
    exposed += std::max(sum * last, sum - beside);
  }
  if (facts.parallel.zero >= 1 && facts.shards() > 1) {
    const double gather =
        both([&](double n, GroupShape g) { return costs.gather_weights_s(n, g); });
    const double units =
        static_cast<double>(facts.model.num_layers) / static_cast<double>(facts.parallel.pp) + 1;
    const double beside = hides ? passes.forward.sum() : 0;
    exposed += std::max(gather / units, gather - beside);
  }
  return exposed;
}

/// Returns the time in which an optimizer of whole matrices orthogonalizes them, and moves them to
/// their owners and back.
double matrices_s(const train::UpdateFacts& facts, const ActionCosts& costs, double held) {
  const double flops = train::matrix_flops(facts);
  if (flops == 0) return 0;
  const double elements = held * static_cast<double>(facts.master_size() / facts.compute_size());
  return costs.flops_s(flops) + 2 * costs.gather_weights_s(elements, costs.data_group());
}

/// Returns the time of the optimizer, which reads weights, state and gradient, and writes weights
/// and state.
double optimizer_s(const train::UpdateFacts& facts, const ActionCosts& costs,
                   const train::Elements& weights) {
  const auto main = static_cast<double>(facts.master_size());
  const auto element = static_cast<double>(facts.compute_size());
  const double held = train::held_elements(facts, weights, facts.parallel.zero >= 1);
  const double bytes =
      held * (main * (2 * (1 + static_cast<double>(facts.state_slots())) + 1) + element);
  const double matrices = matrices_s(facts, costs, held);
  if (facts.parallel.offload == "optimizer" && element < main)
    return matrices + bytes / kHostBytesPerS;
  return matrices + costs.memory_s(bytes);
}

}  // namespace

const std::vector<model::StageRange>& StepPredictor::ranges(const train::UpdateFacts& facts) {
  const model::ModelConfig& m = facts.model;
  const int count = parallel::stage_placement(facts.parallel).stages();
  const StageKey key{m.num_layers, m.hidden_size,
                     m.vocab_size, facts.length,
                     count,        facts.parallel.pp == 1 ? "auto" : facts.parallel.stages,
                     m.preset};
  const auto found = ranges_.find(key);
  if (found != ranges_.end()) return found->second;
  return ranges_.emplace(key, model::model_stages(m, facts.parallel, facts.length)).first->second;
}

const pipeline::Schedule& StepPredictor::schedule(const parallel::ParallelConfig& parallel,
                                                  int micro_batches) {
  const ScheduleKey key{parallel.schedule, parallel.pp, parallel.virtual_stages, micro_batches};
  const auto found = schedules_.find(key);
  if (found != schedules_.end()) return found->second;
  return schedules_.emplace(key, parallel::stage_schedule(parallel, micro_batches)).first->second;
}

StepPredictor::Stages StepPredictor::stages_of(const train::UpdateFacts& facts,
                                               const ActionCosts& costs) {
  Stages stages;
  const pipeline::Placement& placement =
      facts.parallel.pp == 1 ? pipeline::Placement{} : schedule(facts.parallel, 0).placement;
  stages.ranks.resize(static_cast<std::size_t>(facts.parallel.pp));
  const std::vector<model::StageRange>& ranges = this->ranges(facts);
  const model::MoeConfig& moe = facts.model.moe;
  for (std::size_t s = 0; s < ranges.size(); ++s) {
    const model::StageRange& range = ranges[s];
    const std::int64_t dense =
        moe.on() ? std::clamp<std::int64_t>(moe.first_dense_layers - range.first_layer, 0,
                                            range.end_layer - range.first_layer)
                 : range.end_layer - range.first_layer;
    const std::int64_t experts = range.end_layer - range.first_layer - dense;
    ActionCost cost;
    train::Elements weights;
    for (const bool of_experts : {false, true}) {
      const auto layers = static_cast<double>(of_experts ? experts : dense);
      if (layers == 0) continue;
      cost.add(costs.block(of_experts), layers);
      const train::Elements block = costs.weights(of_experts);
      weights.dense += layers * block.dense;
      weights.experts += layers * block.experts;
    }
    add_tables(facts, costs, range, cost, weights);
    RankWork& rank = stages.ranks[static_cast<std::size_t>(placement.rank_of_stage[s])];
    rank.cost.add(cost);
    rank.weights.dense += weights.dense;
    rank.weights.experts += weights.experts;
    stages.costs.push_back(cost);
  }
  return stages;
}

void StepPredictor::run_pipeline(const train::UpdateFacts& facts, const ActionCosts& costs,
                                 const Stages& stages, StepTime& time) {
  const auto micro_steps = static_cast<double>(facts.micro_steps);
  const auto slowest = std::ranges::max_element(
      stages.ranks, {}, [](const RankWork& rank) { return rank.cost.sum(); });
  const double busy = slowest->cost.sum();
  for (const Seconds* part :
       {&slowest->cost.forward, &slowest->cost.input_grad, &slowest->cost.weight_grad})
    time.spent.add(*part, micro_steps);
  time.step_s = micro_steps * busy;
  if (facts.parallel.pp == 1) return;

  std::int64_t enough = kSteadyRounds * facts.parallel.pp + facts.micro_steps % facts.parallel.pp;
  if (parallel::micro_batches_of_schedule(facts.parallel) > 0) enough = facts.micro_steps;
  const auto simulated = static_cast<int>(std::min(facts.micro_steps, enough));
  const double behind = static_cast<double>(facts.micro_steps - simulated) * busy;
  pipeline::Timing timing{{}, costs.transfer_s()};
  double all_busy = 0;
  for (const ActionCost& cost : stages.costs) {
    timing.stages.push_back({cost.forward.sum(), cost.input_grad.sum(), cost.weight_grad.sum()});
    all_busy += timing.stages.back().sum();
  }
  const pipeline::Schedule& order = schedule(facts.parallel, simulated);
  time.step_s = pipeline::simulate(order, timing).makespan + behind;
  timing.transfer = 0;
  time.transfer_s = time.step_s - (pipeline::simulate(order, timing).makespan + behind);
  time.bubble_share =
      time.step_s * static_cast<double>(facts.parallel.pp) / (all_busy * micro_steps) - 1;
  const double speed = processors_a_rank();
  if (speed == 1) return;
  // The costs assume that all ranks compute; an action on its own core takes less time.
  timing.transfer = costs.transfer_s();
  for (pipeline::ActionTimes& pass : timing.stages)
    pass = {pass.forward * speed, pass.input_grad * speed, pass.weight_grad * speed};
  const auto ranks = static_cast<double>(facts.parallel.pp);
  time.step_s =
      pipeline::makespan_on_processors(order, timing, speed * ranks) +
      static_cast<double>(facts.micro_steps - simulated) * std::max(all_busy / ranks, busy * speed);
}

double StepPredictor::processors_a_rank() const {
  const DeviceKind& device = cluster_.device;
  if (!device.shares_node || device.cores >= cluster_.per_node) return 1;
  return static_cast<double>(device.cores) / cluster_.per_node;
}

StepTime StepPredictor::predict(const train::UpdateFacts& facts) {
  const ActionCosts costs(facts, cluster_, constants_);
  const Stages stages = stages_of(facts, costs);
  StepTime time;
  run_pipeline(facts, costs, stages, time);
  double exposed = 0;
  for (const RankWork& rank : stages.ranks) {
    exposed = std::max(exposed, exposed_over_data(facts, costs, rank.cost, rank.weights,
                                                  !cluster_.device.shares_node));
    time.optimizer_s = std::max(time.optimizer_s, optimizer_s(facts, costs, rank.weights));
  }
  time.spent.dp += exposed;
  time.step_s += exposed + time.optimizer_s + constants_.overhead_s;
  return time;
}

double StepPredictor::least_s(const train::UpdateFacts& facts) {
  const ActionCosts costs(facts, cluster_, constants_);
  const Stages stages = stages_of(facts, costs);
  const double speed = processors_a_rank();
  double mean = 0;
  for (const RankWork& rank : stages.ranks)
    mean += rank.cost.sum() / static_cast<double>(stages.ranks.size());
  double least = 0;
  double filling = 0;
  for (std::size_t rank = 0; rank < stages.ranks.size(); ++rank) {
    const ActionCost& cost = stages.ranks[rank].cost;
    const double busy = cost.sum();
    // Ranks that share a core compute in each other's bubbles.
    double time = static_cast<double>(facts.micro_steps) * std::max(busy * speed, mean);
    if (!cluster_.device.shares_node)
      time += filling;  // on shared cores, other ranks may compute meanwhile
    time += exposed_over_data(facts, costs, cost, stages.ranks[rank].weights,
                              !cluster_.device.shares_node);
    least = std::max(least, time + optimizer_s(facts, costs, stages.ranks[rank].weights));
    filling += stages.costs[rank].forward.sum();
  }
  return least + constants_.overhead_s;
}

}  // namespace trireme::planner
