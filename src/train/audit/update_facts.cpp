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
                         const ParamDTypes& dtypes, const ParallelConfig& parallel, int ranks,
                         const UpdateShape& update, const LoraConfig& lora) {
  UpdateFacts facts{model,
                    parallel,
                    dtypes,
                    static_cast<std::int64_t>(num_optimizer_slots(optim)),
                    update.rows,
                    update.length,
                    update.micro_steps,
                    ranks};
  facts.lora = lora;
  facts.fused = update.path == ops::Path::fast && dtypes.compute != at::kDouble &&
                model.attention_dropout == 0;
  return facts;
}

UpdateFacts update_facts(const ModelConfig& model, const OptimConfig& optim,
                         const ParamDTypes& dtypes, const Mesh& mesh, const UpdateShape& update,
                         const LoraConfig& lora) {
  UpdateFacts facts =
      update_facts(model, optim, dtypes, mesh.config(), mesh.world().size(), update, lora);
  if (const NodeLevels* levels = mesh.node_levels()) facts.node_replicas = levels->node->size();
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
  std::vector<std::int64_t> elements = units.padded(facts.data_ranks());
  if (!facts.lora.on()) return elements;
  UnitSums adapters(/*persist=*/0);
  for (const AdapterElements& group : adapter_elements(facts, tp_rank)) {
    if (group.terms > 0) adapters.add(group.a, group.a);
    for (const std::int64_t b : group.b) adapters.add(b, b);
  }
  adapters.end_unit();
  elements.insert(elements.end(), static_cast<std::size_t>(m.num_layers),
                  adapters.padded(facts.data_ranks()).front());
  return elements;
}

std::vector<std::int64_t> trained_elements(const UpdateFacts& facts,
                                           const std::vector<std::int64_t>& elements) {
  return {facts.lora.on() ? elements.end() - facts.model.num_layers : elements.begin(),
          elements.end()};
}

std::array<AdapterElements, 4> adapter_elements(const UpdateFacts& facts, int tp_rank) {
  const ModelConfig& m = facts.model;
  const auto tp = static_cast<int>(facts.parallel.tp);
  const std::array<bool, 7> targets = lora_targets(facts.lora, m);
  const LinearShapes shapes = block_linears(m);
  const DimSplit key_heads{.readers = m.num_heads};
  std::int64_t keys_held = 0;  // by all ranks
  for (int rank = 0; rank < tp; ++rank)
    keys_held += split_range(m.num_kv_heads, key_heads, tp, rank).count();
  const std::int64_t queries = split_range(m.num_heads, {}, tp, tp_rank).count() * m.head_dim;
  const std::int64_t keys =
      split_range(m.num_kv_heads, key_heads, tp, tp_rank).count() * m.head_dim;
  const std::int64_t width = split_range(m.intermediate_size, {}, tp, tp_rank).count();

  struct Cut {
    std::size_t group;
    std::int64_t rows;  // of this rank
    std::int64_t columns;
    bool shares_rows = false;
  };

  const bool shares_keys = keys_held > m.num_kv_heads;
  const std::array<Cut, 7> cuts{{{0, queries, m.hidden_size},
                                 {0, keys, m.hidden_size, shares_keys},
                                 {0, keys, m.hidden_size, shares_keys},
                                 {1, m.hidden_size, queries, true},
                                 {2, width, m.hidden_size},
                                 {2, width, m.hidden_size},
                                 {3, m.hidden_size, width, true}}};
  std::array<AdapterElements, 4> groups;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (!targets[i]) continue;
    const Cut& cut = cuts[i];
    AdapterElements& group = groups[cut.group];
    ++group.terms;
    group.a += facts.lora.rank * cut.columns;
    group.b.push_back(facts.lora.rank * cut.rows);
    const bool by_rows = cut.group == 0 || cut.group == 2;  // W is cut there
    if (by_rows) group.shared += facts.lora.rank * m.hidden_size;
    if (cut.shares_rows) group.shared += facts.lora.rank * shapes[i].rows;
  }
  return groups;
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
  const std::size_t first_trained = elements.size() - trained_elements(facts, elements).size();
  for (std::size_t unit = walked; unit < elements.size(); ++unit) {
    persistent += elements[unit];
    plan.gathers[unit] = unit >= first_trained ? 1 : 0;
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
