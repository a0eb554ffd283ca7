#include "train/planner/layout_memory.hpp"

#include <algorithm>
#include <set>
#include <vector>

#include "model/stages/rank_stages.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "train/cost/matrix_cost.hpp"
#include "train/cost/memory_formula.hpp"
#include "train/cost/rank_widths.hpp"
#include "train/cost/state_bytes.hpp"

namespace trireme::planner {
namespace {

constexpr double kUsable = 0.92;

/// Returns the ranks of pp that may need the most memory: of ranks with equal stages only the
/// first, which has at least as many micro batches in flight. With a schedule file, returns all
/// ranks.
std::set<int> ranks_that_differ(const train::UpdateFacts& facts) {
  const auto pp = static_cast<int>(facts.parallel.pp);
  std::set<int> ranks{0, pp - 1};
  const bool is_file = parallel::micro_batches_of_schedule(facts.parallel) > 0;
  if (pp == 1) return ranks;
  const std::vector<model::StageRange> stages =
      model::model_stages(facts.model, facts.parallel, facts.length);
  const pipeline::Placement placement = parallel::stage_placement(facts.parallel);
  std::set<std::vector<std::int64_t>> known;
  for (int rank = 0; rank < pp; ++rank) {
    std::vector<std::int64_t> parts;
    for (const int stage : placement.stages_of(rank)) {
      const model::StageRange& range = stages[static_cast<std::size_t>(stage)];
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

}  // namespace

LayoutMemory layout_memory(const train::UpdateFacts& facts, const DeviceKind& device, int pp_rank,
                           const LogitChunk& logits) {
  const auto pp = static_cast<int>(facts.parallel.pp);
  const int rank = train::largest_rank(facts, pp_rank);
  train::UpdateFacts counted = facts;
  counted.fused = true;  // plain operations need at least this
  counted.even_experts = true;
  // More micro batches than the pipeline holds do not change the peak, so the list is cut to save
  // time. gpipe holds all micro batches. A schedule file has a fixed number of micro batches.
  if (parallel::micro_batches_of_schedule(facts.parallel) == 0)
    counted.micro_steps = std::min(facts.micro_steps, 2L * pp + facts.micro_steps % pp);
  train::RankMemory exact = train::memory_formula(counted, rank);
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
  memory.activations =
      static_cast<double>(exact.activation_peak_bytes) + train::block_backward_bytes(counted);
  const std::vector<int> last = parallel::stage_placement(facts.parallel).rank_of_stage;
  if (last.back() == pp_rank) {
    const auto element = static_cast<double>(facts.compute_size());
    const double each = device.shares_node ? element : 2 * element + 8;
    memory.logits =
        train::logit_bytes(facts, logits.rows, logits.bytes_each > 0 ? logits.bytes_each : each);
  }
  memory.buffers = train::gathered_bytes(counted, exact, rank) +
                   (facts.ranks > 1 ? device.held_bytes : device.held_bytes / 2);
  const double messages =
      train::matrix_message_bytes(facts, static_cast<double>(exact.optimizer_bytes));
  memory.buffers += std::max(0.0, messages - memory.activations - memory.logits);
  return memory;
}

LayoutMemory max_rank_memory(const train::UpdateFacts& facts, const DeviceKind& device) {
  LayoutMemory worst;
  for (const int rank : ranks_that_differ(facts)) {
    const LayoutMemory one = layout_memory(facts, device, rank);
    if (one.total() > worst.total()) worst = one;
  }
  return worst;
}

double min_memory(const train::UpdateFacts& facts) {
  const train::MeanElements elements = train::mean_elements(facts);
  const train::StateBytes state = train::state_bytes(facts, elements.trained);
  const bool offloaded = facts.parallel.offload == "optimizer";
  return state.weights + train::weight_bytes(facts, elements.frozen) + state.grads +
         (offloaded ? 0 : state.main + state.optimizer);
}

double usable_bytes(const Cluster& cluster) {
  return kUsable * cluster.device.memory_bytes /
         (cluster.device.shares_node ? cluster.per_node : 1);
}

}  // namespace trireme::planner
