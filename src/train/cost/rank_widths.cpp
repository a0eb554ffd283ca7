#include "train/cost/rank_widths.hpp"

#include "model/block.hpp"

namespace trireme::train {

RankWidths rank_widths(const UpdateFacts& facts, const parallel::RankCoords& at) {
  const model::ModelConfig& m = facts.model;
  const auto tp = static_cast<int>(facts.parallel.tp);
  const auto etp = static_cast<int>(parallel::expert_tensor_ranks(facts.parallel));
  const model::LocalHeads heads = model::local_heads(m, tp, at.tp);
  std::int64_t keys_of_all = 0;
  for (int rank = 0; rank < tp; ++rank)
    keys_of_all +=
        parallel::split_range(m.num_kv_heads, {.readers = m.num_heads}, tp, rank).count();
  const auto part = [&](std::int64_t width) {
    return parallel::split_range(width, {}, tp, at.tp).count();
  };
  RankWidths widths;
  widths.query_heads = heads.query.count();
  widths.key_heads = heads.key.count();
  widths.queries = widths.query_heads * m.head_dim;
  widths.keys = widths.key_heads * m.head_dim;
  widths.copies_keys = !heads.key_of_query.empty();
  widths.shares_keys = keys_of_all > m.num_kv_heads;
  widths.mlp = part(m.intermediate_size);
  widths.shared = part(m.moe.shared_width());
  widths.expert = parallel::split_range(m.moe.moe_intermediate_size, {}, etp, at.etp).count();
  widths.experts =
      parallel::split_range(m.moe.num_experts, {}, static_cast<int>(facts.parallel.ep), at.ep)
          .count();
  widths.vocab = part(m.vocab_size);
  return widths;
}

int largest_rank(const UpdateFacts& facts, int pp_rank) {
  return facts.ranks / static_cast<int>(facts.parallel.pp) * (pp_rank + 1) - 1;
}

std::array<AdapterElements, 4> adapter_elements(const UpdateFacts& facts, int tp_rank) {
  const model::ModelConfig& m = facts.model;
  const std::array<bool, 7> targets = model::lora_targets(facts.lora, m);
  const model::LinearShapes shapes = model::block_linears(m);
  const RankWidths here = rank_widths(facts, {.tp = tp_rank});

  struct Cut {
    std::size_t group;
    std::int64_t rows;  // rows on this rank
    std::int64_t columns;
    bool shares_rows = false;
  };

  const std::array<Cut, 7> cuts{{{0, here.queries, m.hidden_size},
                                 {0, here.keys, m.hidden_size, here.shares_keys},
                                 {0, here.keys, m.hidden_size, here.shares_keys},
                                 {1, m.hidden_size, here.queries, true},
                                 {2, here.mlp, m.hidden_size},
                                 {2, here.mlp, m.hidden_size},
                                 {3, m.hidden_size, here.mlp, true}}};
  std::array<AdapterElements, 4> groups;
  for (std::size_t i = 0; i < cuts.size(); ++i) {
    if (!targets[i]) continue;
    const Cut& cut = cuts[i];
    AdapterElements& group = groups[cut.group];
    ++group.terms;
    group.a += facts.lora.rank * cut.columns;
    group.b.push_back(facts.lora.rank * cut.rows);
    const bool by_rows = cut.group == 0 || cut.group == 2;  // W is sharded by rows
    if (by_rows) group.shared += facts.lora.rank * m.hidden_size;
    if (cut.shares_rows) group.shared += facts.lora.rank * shapes[i].rows;
  }
  return groups;
}

}  // namespace trireme::train
