#include "train/audit/update_facts.hpp"

#include <algorithm>
#include <utility>

#include "optim/optimizer.hpp"

namespace trireme {
namespace {

std::int64_t rounded_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

/// Elements of units as their matrices are added.
class UnitSums {
 public:
  explicit UnitSums(std::int64_t persist) : persist_(persist) {}

  /// `held` elements on this rank of a matrix of `all`.
  void add(std::int64_t all, std::int64_t held) {
    std::int64_t& sum = all < persist_ ? persistent_ : sum_;
    any_persistent_ = any_persistent_ || all < persist_;
    sum = rounded_up(sum, 64) + held;
  }

  void end_unit() { units_.push_back(std::exchange(sum_, 0)); }

  [[nodiscard]] std::vector<std::int64_t> padded(std::int64_t data_ranks) {
    if (any_persistent_) units_.push_back(persistent_);
    for (std::int64_t& unit : units_) unit = rounded_up(unit, 64 * data_ranks);
    return std::move(units_);
  }

 private:
  std::int64_t persist_;
  std::int64_t sum_ = 0;
  std::int64_t persistent_ = 0;
  bool any_persistent_ = false;
  std::vector<std::int64_t> units_;
};

/// A unit is about to be read (use), or has been.
struct UnitEvent {
  std::size_t unit;
  bool use;
};

/// One micro-batch: the embedding and every block forward, the head from its norm until the loss
/// has its gradient, the blocks backward. The embedding's own backward reads no weight.
std::vector<UnitEvent> events_of(const ModelConfig& model) {
  const auto head = static_cast<std::size_t>(model.num_layers) + 1;
  std::vector<UnitEvent> events;
  for (std::size_t unit = 0; unit < head; ++unit) {
    events.push_back({unit, true});
    events.push_back({unit, false});
  }
  std::vector<std::size_t> last{head};
  if (model.tie_embeddings) last.push_back(0);
  for (const std::size_t unit : last) events.push_back({unit, true});
  for (const std::size_t unit : last) events.push_back({unit, false});
  for (std::size_t unit = head - 1; unit > 0; --unit) {
    events.push_back({unit, true});
    events.push_back({unit, false});
  }
  return events;
}

}  // namespace

UpdateFacts update_facts(const ModelConfig& model, const OptimConfig& optim,
                         const ParamDTypes& dtypes, const Mesh& mesh, const UpdateShape& update) {
  UpdateFacts facts{model,
                    mesh.config(),
                    dtypes,
                    static_cast<std::int64_t>(num_optimizer_slots(optim)),
                    update.rows,
                    update.length,
                    update.micro_steps,
                    mesh.world().size()};
  if (const NodeLevels* levels = mesh.node_levels()) facts.node_replicas = levels->node->size();
  facts.fused = update.path == ops::Path::fast && dtypes.compute != at::kDouble &&
                model.attention_dropout == 0;
  facts.averages = mesh.trains_alone() && update.step % mesh.config().local_steps == 0;
  return facts;
}

std::int64_t UpdateFacts::data_ranks() const {
  return std::int64_t{trireme::data_ranks(parallel, ranks)} * parallel.cp;
}

std::int64_t UpdateFacts::shards() const {
  return shard_ranks(parallel, data_ranks());
}

bool UpdateFacts::trains_alone() const {
  return parallel.local_steps > 1 && data_ranks() > parallel.cp;
}

bool UpdateFacts::grads_leave_each_pass() const {
  return parallel.reproducible || (parallel.zero >= 2 && shards() > 1);
}

RankCoords coords_of(const UpdateFacts& facts, int rank) {
  return rank_coords(facts.parallel, facts.ranks, rank);
}

std::vector<std::int64_t> unit_elements(const UpdateFacts& facts, int tp_rank) {
  const ModelConfig& m = facts.model;
  const auto tp = static_cast<int>(facts.parallel.tp);
  const std::int64_t queries = split_range(m.num_heads, {}, tp, tp_rank).count();
  const std::int64_t keys =
      split_range(m.num_kv_heads, {.readers = m.num_heads}, tp, tp_rank).count();
  const std::int64_t width = split_range(m.intermediate_size, {}, tp, tp_rank).count();
  const std::int64_t vocab = split_range(m.vocab_size, {}, tp, tp_rank).count();
  UnitSums units(facts.persist());
  const std::int64_t hidden = m.hidden_size;
  units.add(m.vocab_size * hidden, vocab * hidden);
  units.end_unit();
  for (std::int64_t layer = 0; layer < m.num_layers; ++layer) {
    units.add(hidden, hidden);
    units.add((m.num_heads + 2 * m.num_kv_heads) * m.head_dim * hidden,
              (queries + 2 * keys) * m.head_dim * hidden);
    units.add(m.num_heads * m.head_dim * hidden, queries * m.head_dim * hidden);
    units.add(hidden, hidden);
    units.add(2 * m.intermediate_size * hidden, 2 * width * hidden);
    units.add(m.intermediate_size * hidden, width * hidden);
    for (int norm = 0; norm < (m.qk_norm ? 2 : 0); ++norm) units.add(m.head_dim, m.head_dim);
    units.end_unit();
  }
  units.add(hidden, hidden);
  if (!m.tie_embeddings) units.add(m.vocab_size * hidden, vocab * hidden);
  units.end_unit();
  return units.padded(facts.data_ranks());
}

GatherPlan plan_gathers(const UpdateFacts& facts, const std::vector<std::int64_t>& elements) {
  GatherPlan plan{std::vector<std::int64_t>(elements.size()), 0};
  if (!facts.weights_sharded()) return plan;
  const bool reshard = facts.parallel.zero_reshard;
  const std::vector<UnitEvent> events = events_of(facts.model);
  std::vector<std::size_t> walk;
  for (const UnitEvent& event : events)
    if (event.use) walk.push_back(event.unit);
  std::vector<bool> here(elements.size());
  const auto walked = static_cast<std::size_t>(facts.model.num_layers) + 2;
  std::int64_t persistent = 0;
  if (elements.size() > walked) {
    persistent = elements.back();
    plan.gathers.back() = 1;
  }
  std::int64_t live = persistent;
  for (std::int64_t step = 0; step < facts.micro_steps; ++step) {
    std::size_t next = 0;
    for (const UnitEvent& event : events) {
      if (event.use) {
        const auto ahead = static_cast<std::size_t>(facts.parallel.zero_prefetch) + 1;
        for (std::size_t i = next; i < std::min(walk.size(), next + ahead); ++i) {
          if (here[walk[i]]) continue;
          here[walk[i]] = true;
          ++plan.gathers[walk[i]];
          live += elements[walk[i]];
        }
        plan.peak_elements = std::max(plan.peak_elements, live);
        ++next;
      } else if (reshard && here[event.unit] && !(next < walk.size() && walk[next] == event.unit)) {
        here[event.unit] = false;
        live -= elements[event.unit];
      }
    }
    if (!reshard) continue;
    std::fill(here.begin(), here.end(), false);
    live = persistent;
  }
  return plan;
}

}  // namespace trireme
