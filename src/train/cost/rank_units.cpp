#include "train/cost/rank_units.hpp"

#include <algorithm>
#include <utility>

#include "model/residual_terms.hpp"
#include "model/stages/rank_stages.hpp"
#include "parallel/pipeline/stage_plan.hpp"
#include "train/cost/rank_widths.hpp"

namespace trireme::train {
namespace {

std::int64_t rounded_up(std::int64_t value, std::int64_t step) {
  return (value + step - 1) / step * step;
}

/// Counts the elements of FSDP units while matrices are added.
class UnitSums {
 public:
  explicit UnitSums(std::int64_t persist) : persist_(persist) {}

  /// Adds `held` elements of a matrix of `all` elements. If `alone`, the matrix never counts as
  /// small.
  void add(std::int64_t all, std::int64_t held, bool alone = false) {
    const bool small = !alone && all < persist_;
    std::int64_t& sum = small ? persistent_ : sum_;
    any_persistent_ = any_persistent_ || small;
    sum = rounded_up(sum, 64) + held;
  }

  /// Ends the current unit and returns its index.
  std::size_t end_unit() {
    units_.push_back(std::exchange(sum_, 0));
    return units_.size() - 1;
  }

  [[nodiscard]] std::size_t count() const { return units_.size(); }

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

/// Adds the matrices of an MLP, or of all experts that are not in a separate expert grid.
void add_mlp(const UpdateFacts& facts, const RankWidths& here, bool experts, UnitSums& units) {
  const std::int64_t hidden = facts.model.hidden_size;
  const std::int64_t inputs = experts ? 2 : facts.model.mlp_inputs();
  const auto add = [&](std::int64_t width, std::int64_t held, std::int64_t count) {
    units.add(inputs * count * width * hidden, inputs * count * held * hidden);
    units.add(count * width * hidden, count * held * hidden);
  };
  if (!experts) return add(facts.model.intermediate_size, here.mlp, 1);
  const model::MoeConfig& moe = facts.model.moe;
  units.add(moe.num_experts * hidden, moe.num_experts * hidden);
  if (moe.has_bias()) units.add(moe.num_experts, moe.num_experts);
  // Without a separate grid, experts are sharded over tp, and etp equals tp.
  if (!facts.has_expert_grid()) add(moe.moe_intermediate_size, here.expert, moe.num_experts);
  if (moe.num_shared_experts > 0) add(moe.shared_width(), here.shared, 1);
}

/// Returns the elements of a block's experts in a separate expert grid.
std::int64_t expert_elements(const UpdateFacts& facts, const RankWidths& here) {
  const std::int64_t matrix = here.experts * here.expert * facts.model.hidden_size;
  return rounded_up(rounded_up(2 * matrix, 64) + matrix, 64 * facts.expert_ranks());
}

void add_residual_scalars(const model::ModelConfig& m, std::int64_t layer, UnitSums& units) {
  for (const model::ResidualTerm& term : model::residual_terms(m, layer)) {
    units.add(1, 1);
    if (term.scale_name != nullptr) units.add(1, 1);
  }
}

/// Adds the matrices, norms and biases of a block.
void add_block(const UpdateFacts& facts, const RankWidths& here, std::int64_t layer,
               UnitSums& units) {
  const model::ModelConfig& m = facts.model;
  const bool experts = m.moe.in_layer(layer);
  const std::int64_t hidden = m.hidden_size;
  const std::int64_t norm = m.norm_size();
  const bool pre_norms = m.norm_gain && m.pre_norms;
  if (pre_norms) units.add(norm, norm);
  units.add((m.num_heads + 2 * m.num_kv_heads) * m.head_dim * hidden,
            (here.queries + 2 * here.keys) * hidden);
  units.add(m.num_heads * m.head_dim * hidden, here.queries * hidden);
  if (pre_norms) units.add(norm, norm);
  add_mlp(facts, here, experts, units);
  if (m.norm_gain && m.qk_norm_whole) {
    units.add(m.num_heads * m.head_dim, here.queries);
    units.add(m.num_kv_heads * m.head_dim, here.keys);
  } else if (m.norm_gain && m.qk_norm) {
    for (int i = 0; i < 2; ++i) units.add(m.head_dim, m.head_dim);
  }
  if (m.qkv_bias)
    units.add((m.num_heads + 2 * m.num_kv_heads) * m.head_dim, here.queries + 2 * here.keys);
  if (m.attention_output_bias) units.add(hidden, hidden);
  if (m.mlp_bias) {
    units.add(m.mlp_inputs() * m.intermediate_size, m.mlp_inputs() * here.mlp);
    units.add(hidden, hidden);
  }
  for (int i = 0; i < (m.norm_gain && m.post_norms ? 2 : 0); ++i) units.add(norm, norm);
  add_residual_scalars(m, layer, units);
  if (m.has_value_embedding(layer)) {
    units.add(m.value_table_size(), m.vocab_size * here.keys);
    const std::int64_t inputs = model::value_gate_inputs(m);
    units.add(m.num_kv_heads * inputs, here.key_heads * inputs);
  }
  if (m.mixes_first_values(layer)) units.add(1, 1);
}

/// Returns the units that a pipeline action uses, in order; only forward actions use the head.
std::vector<std::size_t> used_in(const StageUnits& stage, bool forward) {
  if (!forward) return {stage.blocks.rbegin(), stage.blocks.rend()};
  std::vector<std::size_t> units = stage.blocks;
  if (stage.positions) units.insert(units.begin(), *stage.positions);
  if (stage.embedding) units.insert(units.begin(), *stage.embedding);
  units.insert(units.end(), stage.head.begin(), stage.head.end());
  return units;
}

}  // namespace

RankUnits rank_units(const UpdateFacts& facts, int rank) {
  const model::ModelConfig& m = facts.model;
  const parallel::RankCoords at = coords_of(facts, rank);
  const RankWidths here = rank_widths(facts, at);
  const std::vector<model::StageRange> stages =
      model::rank_stages(m, facts.parallel, facts.length, at.pp);
  const bool whole_table = stages.front().has_embedding && stages.back().has_head;
  const bool in_two = m.tie_embeddings && !whole_table;
  RankUnits units;
  UnitSums sums(facts.persist());
  const auto add_table = [&](bool alone) {
    sums.add(m.vocab_size * m.hidden_size, here.vocab * m.hidden_size, alone);
  };
  for (const model::StageRange& layers : stages) {
    StageUnits stage{layers};
    if (layers.has_embedding) {
      add_table(in_two);
      if (m.smear) {
        sums.add(model::smear_gate_inputs(m), model::smear_gate_inputs(m));
        sums.add(1, 1);
      }
      stage.embedding = sums.end_unit();
      if (in_two) units.replicated_embedding = stage.embedding;
      if (m.learned_positions()) {
        sums.add(m.max_seq_len * m.hidden_size, m.max_seq_len * m.hidden_size);
        stage.positions = sums.end_unit();
      }
    }
    for (std::int64_t layer = layers.first_layer; layer < layers.end_layer; ++layer) {
      const bool experts = m.moe.in_layer(layer);
      add_block(facts, here, layer, sums);
      stage.blocks.push_back(sums.end_unit());
      if (experts && facts.has_expert_grid()) {
        units.experts.push_back(expert_elements(facts, here));
        units.experts_of.push_back(stage.blocks.back());
      }
      ++units.layers;
      units.expert_layers += experts ? 1 : 0;
    }
    if (layers.has_head) {
      if (m.norm_gain) sums.add(m.norm_size(), m.norm_size());
      add_residual_scalars(m, m.num_layers, sums);
      if (!m.tie_embeddings) add_table(false);
      if (m.norm_gain || m.backout || !m.tie_embeddings) stage.head.push_back(sums.end_unit());
      if (in_two) {
        add_table(true);
        units.replicated_embedding = sums.end_unit();
        stage.head.push_back(*units.replicated_embedding);
      } else if (m.tie_embeddings) {
        stage.head.push_back(units.stages.empty() ? *stage.embedding
                                                  : *units.stages.front().embedding);
      }
    }
    units.stages.push_back(std::move(stage));
  }
  if (facts.reward_head && units.has_head()) {  // declared after the model
    sums.add(m.hidden_size, m.hidden_size);
    units.stages.back().head.push_back(sums.end_unit());
  }
  units.walked = sums.count();
  units.elements = sums.padded(facts.data_ranks());
  if (!facts.lora.on()) return units;
  UnitSums adapters(/*persist=*/0);
  for (const AdapterElements& group : adapter_elements(facts, at.tp)) {
    if (group.terms > 0) adapters.add(group.a, group.a);
    for (const std::int64_t b : group.b) adapters.add(b, b);
  }
  adapters.end_unit();
  units.first_trained = units.elements.size();
  units.elements.insert(units.elements.end(), static_cast<std::size_t>(units.layers),
                        adapters.padded(facts.data_ranks()).front());
  return units;
}

std::vector<pipeline::StageAction> actions_of(const UpdateFacts& facts, int rank) {
  return facts.schedule().lists[static_cast<std::size_t>(coords_of(facts, rank).pp)];
}

GatherPlan plan_gathers(const UpdateFacts& facts, const RankUnits& units,
                        const std::vector<pipeline::StageAction>& passes) {
  GatherPlan plan{std::vector<std::int64_t>(units.elements.size()),
                  std::vector<std::int64_t>(units.experts.size()), 0};
  if (!facts.weights_sharded()) return plan;
  // Elements that are gathered and freed with each unit.
  std::vector<std::int64_t> elements = units.elements;
  if (facts.has_expert_grid() && facts.expert_shards() > 1)
    for (std::size_t i = 0; i < units.experts.size(); ++i)
      elements[units.experts_of[i]] += units.experts[i];
  const pipeline::Placement placement = parallel::stage_placement(facts.parallel);

  struct Use {
    std::size_t unit;
    std::size_t uses_until_done;  // uses of later units before this unit may be freed (tied table)
  };

  std::vector<Use> walk;
  for (const pipeline::StageAction& pass : passes) {
    if (pass.kind == pipeline::ActionKind::weight_grad) continue;
    const bool forward = pass.kind == pipeline::ActionKind::forward;
    const StageUnits& stage = units.stages[placement.local_stage_index(pass.stage)];
    const std::vector<std::size_t> used = used_in(stage, forward);
    const std::size_t first_head = forward ? used.size() - stage.head.size() : used.size();
    for (std::size_t i = 0; i < used.size(); ++i)
      walk.push_back({used[i], i < first_head ? 0 : used.size() - 1 - i});
  }
  std::int64_t live = 0;
  for (std::size_t unit = units.walked; unit < units.elements.size(); ++unit) {
    live += elements[unit];  // stays gathered
    plan.gathers[unit] = unit >= units.first_trained ? 1 : 0;
  }
  std::vector<bool> here(units.elements.size());
  const auto ahead = static_cast<std::size_t>(facts.parallel.zero_prefetch) + 1;
  std::vector<std::size_t> in_use;
  for (std::size_t next = 0; next < walk.size(); ++next) {
    for (std::size_t i = next; i < std::min(walk.size(), next + ahead); ++i) {
      if (here[walk[i].unit]) continue;
      here[walk[i].unit] = true;
      ++plan.gathers[walk[i].unit];
      live += elements[walk[i].unit];
    }
    plan.peak_elements = std::max(plan.peak_elements, live);
    in_use.push_back(walk[next].unit);
    if (walk[next].uses_until_done > 0) continue;
    for (const std::size_t unit : std::exchange(in_use, {})) {
      const bool is_next = next + 1 < walk.size() && walk[next + 1].unit == unit;
      if (parallel::keeps_gathered(facts.parallel) || !here[unit] || is_next) continue;
      here[unit] = false;
      live -= elements[unit];
    }
  }
  for (std::size_t i = 0; i < units.experts.size(); ++i)
    plan.expert_gathers[i] = plan.gathers[units.experts_of[i]];
  return plan;
}

}  // namespace trireme::train
