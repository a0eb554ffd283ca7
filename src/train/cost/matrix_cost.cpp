#include "train/cost/matrix_cost.hpp"

#include <algorithm>

#include "model/stages/rank_stages.hpp"
#include "model/transformer.hpp"
#include "optim/matrix_plan.hpp"
#include "optim/optimizer.hpp"
#include "train/cost/formula_rows.hpp"

namespace trireme::train {
namespace {

/// The positions of a rank in the grids, as its registry has them.
optim::StageGrids grids_of(const UpdateFacts& facts, int rank) {
  const parallel::RankCoords at = coords_of(facts, rank);
  const auto shards = static_cast<int>(facts.shards());
  const int data = at.cp + static_cast<int>(facts.parallel.cp) * at.dp;
  optim::StageGrids grids;
  grids.dense = {static_cast<int>(facts.parallel.tp), at.tp,        shards, data % shards,
                 static_cast<int>(facts.replicas()),  data / shards};
  grids.persist = facts.persist();
  if (!facts.has_expert_grid()) return grids;
  const auto expert_shards = static_cast<int>(facts.expert_shards());
  grids.experts =
      parallel::ShardGrid{static_cast<int>(parallel::expert_tensor_ranks(facts.parallel)),
                          at.etp,
                          expert_shards,
                          at.edp % expert_shards,
                          static_cast<int>(facts.expert_ranks()) / expert_shards,
                          at.edp / expert_shards,
                          static_cast<int>(facts.parallel.ep),
                          at.ep};
  return grids;
}

std::vector<std::uint64_t> bytes_of(std::vector<std::uint64_t> counts, std::int64_t width) {
  for (std::uint64_t& count : counts) count *= u64(width);
  return counts;
}

/// Returns the operations to orthogonalize one matrix.
double flops_of(const std::string& method, double rows, double columns) {
  const double m = std::min(rows, columns);
  const double n = std::max(rows, columns);
  // Golub and Van Loan, "Matrix computations", R-SVD with both sides.
  if (method == "exact") return 6 * n * m * m + 20 * m * m * m;
  if (method == "gram") return 4 * m * m * n + 5 * 8 * m * m * m;
  return 5 * (4 * m * m * n + 2 * m * m * m);
}

}  // namespace

void add_matrix_rows(const UpdateFacts& facts, int rank, std::vector<CollectiveRow>& rows) {
  const optim::MatrixUse use = optim::matrix_use(facts.optim);
  if (use == optim::MatrixUse::none) return;
  parallel::ParamRegistry registry;
  const model::Transformer model(
      registry, facts.model,
      model::rank_stages(facts.model, facts.parallel, facts.length, coords_of(facts, rank).pp),
      {.lora = facts.lora});
  const optim::StageGrids grids = grids_of(facts, rank);
  for (const bool of_experts : {false, true}) {
    if (of_experts && !grids.experts) continue;
    const optim::MatrixPlan plan = optim::make_matrix_plan(registry, grids, of_experts);
    if (plan.matrices.empty()) continue;
    const FormulaRows group{of_experts ? "expert matrices" : "matrices", grids.ranks(of_experts),
                            grids.rank(of_experts), rows};
    const std::int64_t width = facts.master_size();
    group.add_all_to_all("gather matrices", 1, bytes_of(optim::element_counts(plan.sent), width));
    group.add_all_to_all("scatter matrices", 1,
                         bytes_of(optim::element_counts(plan.scattered), width));
    if (use == optim::MatrixUse::with_lines) {
      group.add_all_to_all("gather lines", 1, bytes_of(optim::line_counts(plan, plan.sent), width));
      group.add_all_to_all("scatter lines", 1,
                           bytes_of(optim::line_counts(plan, plan.scattered), width));
    }
  }
}

double matrix_flops(const UpdateFacts& facts) {
  if (optim::matrix_use(facts.optim) == optim::MatrixUse::none || facts.lora.on()) return 0;
  const std::string method = optim::orthogonalization(facts.optim);
  const model::MoeConfig& moe = facts.model.moe;
  const auto flops = [&](std::int64_t rows, std::int64_t columns) {
    return flops_of(method, static_cast<double>(rows), static_cast<double>(columns));
  };
  const model::LinearShapes linears = model::block_linears(facts.model);
  const std::int64_t width = facts.model.hidden_size;
  double attention = 0;
  double mlp = 0;
  for (std::size_t i = 0; i < linears.size(); ++i)
    (i < 4 ? attention : mlp) += flops(linears[i].rows, linears[i].columns);
  double experts = 0;
  double of_layer = 0;  // router and shared experts
  if (moe.on()) {
    experts = 3 * static_cast<double>(moe.num_experts) * flops(moe.moe_intermediate_size, width);
    of_layer = flops(moe.num_experts, width);
    if (moe.num_shared_experts > 0) of_layer += 3 * flops(moe.shared_width(), width);
  }
  double dense = 0;
  double routed = 0;
  for (std::int64_t layer = 0; layer < facts.model.num_layers; ++layer) {
    const bool has_experts = moe.in_layer(layer);
    dense += attention + (has_experts ? of_layer : mlp);
    routed += has_experts ? experts : 0;
  }
  const auto ranks = static_cast<double>(facts.parallel.pp * facts.parallel.tp * facts.shards());
  if (!facts.has_expert_grid()) return (dense + routed) / ranks;
  const auto expert_ranks =
      static_cast<double>(facts.parallel.pp * facts.parallel.ep * facts.expert_shards() *
                          parallel::expert_tensor_ranks(facts.parallel));
  return dense / ranks + routed / expert_ranks;
}

double matrix_message_bytes(const UpdateFacts& facts, double state_bytes) {
  if (optim::matrix_use(facts.optim) == optim::MatrixUse::none) return 0;
  const bool moves = facts.parallel.tp * facts.shards() > 1;
  return (moves ? 2 : 1) * state_bytes / static_cast<double>(facts.state_slots());
}

}  // namespace trireme::train
