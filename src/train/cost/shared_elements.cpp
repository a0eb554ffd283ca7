#include "train/cost/shared_elements.hpp"

#include <optional>
#include <utility>

#include "model/residual_terms.hpp"
#include "train/cost/rank_widths.hpp"

namespace trireme::train {
namespace {

/// Counts the shared elements of one unit, and of the unit of small parameters.
class SharedSums {
 public:
  explicit SharedSums(std::int64_t persist) : persist_(persist) {}

  /// Adds `count` parameters of `all` elements. `shared` differs from `all` for a part of a fused
  /// matrix.
  void add(std::int64_t all, std::int64_t count, std::optional<std::int64_t> shared = {}) {
    (all < persist_ ? small_ : unit_) += count * shared.value_or(all);
  }

  void end_unit(SharedElements& result) { ++result.units[std::exchange(unit_, 0)]; }

  void end(SharedElements& result) const { ++result.units[small_]; }

 private:
  std::int64_t persist_;
  std::int64_t unit_ = 0;
  std::int64_t small_ = 0;
};

/// Returns the number of scalars of residual terms in a layer.
std::int64_t num_scalars(const model::ModelConfig& model, std::int64_t layer) {
  std::int64_t scalars = 0;
  for (const model::ResidualTerm& term : model::residual_terms(model, layer))
    scalars += term.scale_name != nullptr ? 2 : 1;
  return scalars;
}

void add_block(const UpdateFacts& facts, std::int64_t layer, bool shares_keys, SharedSums& sums) {
  const model::ModelConfig& m = facts.model;
  if (facts.parallel.sequence_parallel) {  // norms, biases and scalars of own tokens
    sums.add(m.norm_size(), (m.pre_norms ? 2 : 0) + (m.post_norms ? 2 : 0));
    sums.add(m.hidden_size, (m.attention_output_bias ? 1 : 0) + (m.mlp_bias ? 1 : 0));
    sums.add(1, num_scalars(m, layer));
  }
  if (m.norm_gain && m.qk_norm && !m.qk_norm_whole) sums.add(m.head_dim, 2);
  if (m.mixes_first_values(layer)) sums.add(1, 1);
  if (shares_keys) {
    const std::int64_t row = m.head_dim * m.hidden_size;
    const std::int64_t keys = 2 * m.num_kv_heads;
    sums.add((m.num_heads + keys) * row, 1, keys * row);
    if (m.norm_gain && m.qk_norm_whole) sums.add(m.num_kv_heads * m.head_dim, 1);
    if (m.qkv_bias) sums.add((m.num_heads + keys) * m.head_dim, 1, keys * m.head_dim);
    if (m.has_value_embedding(layer)) {
      sums.add(m.value_table_size(), 1);
      sums.add(m.num_kv_heads * model::value_gate_inputs(m), 1);
    }
  }
  if (!m.moe.in_layer(layer)) return;
  sums.add(m.moe.num_experts * m.hidden_size, 1);  // each rank has a partial sum for routers
  if (m.moe.has_bias()) sums.add(m.moe.num_experts, 1);
}

}  // namespace

SharedElements shared_elements(const UpdateFacts& facts, const RankUnits& units,
                               const parallel::RankCoords& coords) {
  const model::ModelConfig& m = facts.model;
  const bool shares_keys = rank_widths(facts, coords).shares_keys;
  SharedElements result;
  SharedSums sums(facts.persist());
  for (const StageUnits& stage : units.stages) {
    for (std::int64_t i = stage.layers.first_layer; i < stage.layers.end_layer; ++i) {
      add_block(facts, i, shares_keys, sums);
      sums.end_unit(result);
    }
  }
  if (facts.parallel.sequence_parallel) {
    if (units.has_head()) sums.add(m.norm_size(), 1);
    if (units.has_head()) sums.add(1, num_scalars(m, m.num_layers));
    sums.end_unit(result);
    if (units.has_embedding() && m.smear) {
      sums.add(model::smear_gate_inputs(m), 1);
      sums.add(1, 1);
    }
    sums.end_unit(result);
    if (units.has_embedding() && m.learned_positions()) sums.add(m.max_seq_len * m.hidden_size, 1);
    sums.end_unit(result);
  }
  sums.end(result);
  return result;
}

}  // namespace trireme::train
