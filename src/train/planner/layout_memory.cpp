#include "train/planner/layout_memory.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "model/rank_stages.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "train/audit/memory_formula.hpp"
#include "train/audit/rank_units.hpp"

namespace trireme::planner {
namespace {

constexpr double kUsable = 0.92;

double size_of(at::ScalarType type) {
  return static_cast<double>(c10::elementSize(type));
}

/// What backward of one block has beside what forward left: gradients of its widest tensors, and with
/// recompute all that it computes again.
double block_bytes(const UpdateFacts& facts, double kept_without_recompute) {
  const ModelConfig& m = facts.model;
  const auto tp = static_cast<double>(facts.parallel.tp);
  const double tokens =
      static_cast<double>(facts.rows * facts.length) / static_cast<double>(facts.parallel.cp);
  const MoeConfig& moe = m.moe;
  const double width =
      moe.on() ? static_cast<double>(moe.num_experts_per_tok * moe.moe_intermediate_size +
                                     moe.shared_width())
               : static_cast<double>(m.intermediate_size);
  const double grads = tokens * size_of(facts.dtypes.compute) *
                       (3 * width / tp + 2 * static_cast<double>(m.hidden_size));
  return grads + (facts.parallel.recompute == "none" ? 0 : kept_without_recompute);
}

/// Units that are whole for a time. In a pipeline under ZeRO 2 and 3 the formula is silent: of
/// gradients at least the unit that fills and the one that leaves.
double gathered_bytes(const UpdateFacts& facts, std::int64_t formula, int rank) {
  if (formula >= 0) return static_cast<double>(formula);
  const RankUnits units = rank_units(facts, rank);
  std::int64_t largest = *std::ranges::max_element(units.elements);
  for (const std::int64_t experts : units.experts) largest = std::max(largest, experts);
  const GatherPlan gathers = plan_gathers(facts, units, passes_of(facts, rank));
  return static_cast<double>(gathers.peak_elements) * size_of(facts.dtypes.compute) +
         2 * static_cast<double>(largest) * size_of(facts.dtypes.main);
}

/// Ranks of pp of which one needs most: of those whose stages are alike the first, which has as many
/// micro-batches under way as any; a file may have more on any rank.
std::set<int> ranks_that_differ(const UpdateFacts& facts) {
  const auto pp = static_cast<int>(facts.parallel.pp);
  std::set<int> ranks{0, pp - 1};
  const bool is_file = micro_batches_of_schedule(facts.parallel) > 0;
  if (pp == 1) return ranks;
  const std::vector<StageRange> stages = model_stages(facts.model, facts.parallel, facts.length);
  const pipeline::Placement placement = stage_placement(facts.parallel);
  std::set<std::vector<std::int64_t>> known;
  for (int rank = 0; rank < pp; ++rank) {
    std::vector<std::int64_t> parts;
    for (const int stage : placement.stages_of(rank)) {
      const StageRange& range = stages[static_cast<std::size_t>(stage)];
      std::int64_t experts = 0;
      for (std::int64_t layer = range.first_layer; layer < range.end_layer; ++layer)
        experts += facts.model.moe.in_layer(layer) ? 1 : 0;
      parts.insert(parts.end(), {range.end_layer - range.first_layer, experts,
                                 range.has_embedding ? 1 : 0, range.has_head ? 1 : 0});
    }
    if (known.insert(parts).second || is_file) ranks.insert(rank);
  }
  return ranks;
}

/// Of one block of one micro-batch, by the formula of a model that has one layer.
double kept_by_one_block(const UpdateFacts& facts) {
  UpdateFacts one = facts;
  one.parallel.recompute = "none";
  one.parallel.pp = 1;
  one.parallel.zero = 0;
  one.parallel.zero_shard = 0;
  one.ranks = static_cast<int>(one.parallel.tp * one.parallel.cp);
  one.micro_steps = 1;
  one.model.num_layers = 1;
  one.model.moe.first_dense_layers = 0;
  one.parallel.ep = 1;  // as many rows come as leave
  return std::max(0.0, static_cast<double>(memory_formula(one, 0).activation_peak_bytes));
}

}  // namespace

LayoutMemory layout_memory(const UpdateFacts& facts, const DeviceKind& device, int pp_rank,
                           const LogitChunk& logits) {
  const auto pp = static_cast<int>(facts.parallel.pp);
  const int rank = facts.ranks / pp * pp_rank;
  UpdateFacts counted = facts;
  counted.fused = true;  // what plain operations keep is not known: at least this
  counted.even_experts = true;
  // More micro-batches than a pipeline holds change nothing but the time that their list takes; gpipe
  // holds all, each as the others. A file is of one number.
  if (micro_batches_of_schedule(facts.parallel) == 0)
    counted.micro_steps = std::min(facts.micro_steps, 2L * pp + facts.micro_steps % pp);
  RankMemory exact = memory_formula(counted, rank);
  if (pp > 1 && facts.parallel.schedule == "gpipe")
    exact.activation_peak_bytes =
        exact.activation_peak_bytes / counted.micro_steps * facts.micro_steps;
  LayoutMemory memory;
  memory.weights = static_cast<double>(exact.weight_bytes);
  memory.main = static_cast<double>(exact.main_bytes);
  memory.grads = static_cast<double>(exact.grad_bytes);
  memory.optimizer = static_cast<double>(exact.optimizer_bytes);
  if (facts.parallel.offload == "optimizer" && !device.shares_node)
    memory.main = memory.optimizer = 0;
  const bool recomputes = facts.parallel.recompute != "none";
  memory.activations = static_cast<double>(exact.activation_peak_bytes) +
                       block_bytes(facts, recomputes ? kept_by_one_block(counted) : 0);
  const std::vector<int> last = stage_placement(facts.parallel).rank_of_stage;
  if (last.back() == pp_rank) {
    const auto tokens = facts.rows * facts.length / facts.parallel.cp;
    const double element = size_of(facts.dtypes.compute);
    const double each = device.shares_node ? element : 2 * element + 8;
    memory.logits = (logits.bytes_each > 0 ? logits.bytes_each : each) *
                    static_cast<double>(std::min(tokens, logits.rows)) *
                    static_cast<double>(facts.model.vocab_size) /
                    static_cast<double>(facts.parallel.tp);
  }
  memory.buffers = gathered_bytes(counted, exact.gathered_peak_bytes, rank) +
                   (facts.ranks > 1 ? device.held_bytes : device.held_bytes / 2);
  return memory;
}

LayoutMemory worst_memory(const UpdateFacts& facts, const DeviceKind& device) {
  LayoutMemory worst;
  for (const int rank : ranks_that_differ(facts)) {
    const LayoutMemory one = layout_memory(facts, device, rank);
    if (one.total() > worst.total()) worst = one;
  }
  return worst;
}

double least_memory(const UpdateFacts& facts) {
  const auto cuts = static_cast<double>(facts.parallel.tp * facts.parallel.pp * facts.parallel.ep);
  const double elements = facts.model.num_parameters_wide() / cuts;
  const auto shards = static_cast<double>(facts.shards());
  const double main = size_of(facts.dtypes.main);
  const double compute = size_of(facts.dtypes.compute);
  const std::int64_t zero = facts.parallel.zero;
  const bool offloaded = facts.parallel.offload == "optimizer";
  const double copies = offloaded ? 0 : static_cast<double>(facts.slots) + (compute < main ? 1 : 0);
  return elements * (compute / (zero >= 3 ? shards : 1) + main / (zero >= 2 ? shards : 1) +
                     main * copies / (zero >= 1 ? shards : 1));
}

double usable_bytes(const Cluster& cluster) {
  return kUsable * cluster.device.memory_bytes /
         (cluster.device.shares_node ? cluster.per_node : 1);
}

}  // namespace trireme::planner
