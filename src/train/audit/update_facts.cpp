#include "train/audit/update_facts.hpp"

#include "optim/optimizer.hpp"
#include "parallel/pipeline/stage_plan.hpp"

namespace trireme {
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

pipeline::Schedule UpdateFacts::schedule() const {
  if (found_schedule) return *found_schedule;
  return stage_schedule(parallel, static_cast<int>(micro_steps));
}

std::int64_t UpdateFacts::data_ranks() const {
  return std::int64_t{trireme::data_ranks(parallel, ranks)} * parallel.cp;
}

std::int64_t UpdateFacts::shards() const {
  return shard_ranks(parallel, data_ranks());
}

std::int64_t UpdateFacts::expert_ranks() const {
  return expert_data_ranks(parallel, ranks);
}

std::int64_t UpdateFacts::expert_shards() const {
  return expert_shard_ranks(parallel, ranks);
}

bool UpdateFacts::has_parts() const {
  return shards() > 1 || (folds_experts() && expert_shards() > 1);
}

bool UpdateFacts::trains_alone() const {
  return parallel.local_steps > 1 && data_ranks() > parallel.cp;
}

bool UpdateFacts::grads_leave_each_pass() const {
  return parallel.reproducible || (parallel.zero >= 2 && has_parts());
}

RankCoords coords_of(const UpdateFacts& facts, int rank) {
  return rank_coords(facts.parallel, facts.ranks, rank);
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

}  // namespace trireme
