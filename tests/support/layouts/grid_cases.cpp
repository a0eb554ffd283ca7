#include "support/layouts/grid_cases.hpp"

#include <algorithm>
#include <array>
#include <set>

#include "core/error.hpp"
#include "optim/optimizer.hpp"
#include "pipeline/named.hpp"
#include "support/layouts/covering.hpp"

namespace trireme::testing {
namespace {

/// 0: one micro-batch; 1: as many as stages; 2: more, and not a multiple.
std::int64_t batches_of(const GridCase& one) {
  return one.micro_batches == 1 ? 0 : one.micro_batches == one.pp ? 1 : 2;
}

FactorValues factors_of(const GridCase& one) {
  const auto* const schedule = one.pp == 1 ? pipeline::kSchedules.end()
                                           : std::find(pipeline::kSchedules.begin(),
                                                       pipeline::kSchedules.end(), one.schedule);
  return {{one.dp, one.tp, one.pp, one.cp, one.ep, one.etp == one.tp,
           schedule - pipeline::kSchedules.begin(), one.zero, batches_of(one)},
          one.ranks()};
}

std::vector<GridCase> all_grids() {
  std::vector<GridCase> grids;
  const std::array<std::int64_t, 4> sizes{1, 2, 4, 8};
  for (const std::int64_t dp : sizes) {
    for (const std::int64_t tp : sizes) {
      for (const std::int64_t pp : sizes) {
        for (const std::int64_t cp : sizes) {
          if (dp * tp * pp * cp > 8) continue;
          for (const std::int64_t etp : std::set{tp, std::int64_t{1}})
            for (const std::int64_t ep : sizes)
              if (tp * cp * dp / etp % ep == 0) grids.push_back({dp, tp, pp, cp, ep, etp});
        }
      }
    }
  }
  return grids;
}

}  // namespace

std::vector<GridCase> all_grid_cases() {
  std::vector<GridCase> cases;
  for (const GridCase& grid : all_grids()) {
    const bool staged = grid.pp > 1;
    const std::size_t schedules = staged ? pipeline::kSchedules.size() : 1;
    for (std::size_t schedule = 0; schedule < schedules; ++schedule) {
      for (std::int64_t zero = 0; zero <= (grid.dp * grid.cp > 1 ? 3 : 0); ++zero) {
        for (const std::int64_t batches : std::set{std::int64_t{1}, grid.pp, 2 * grid.pp + 1}) {
          GridCase one = grid;
          if (staged) one.schedule = pipeline::kSchedules[schedule];
          one.zero = zero;
          one.micro_batches = batches;
          one.number = cases.size();
          cases.push_back(one);
        }
      }
    }
  }
  return cases;
}

std::vector<GridCase> covering_cases(const std::vector<GridCase>& cases) {
  return covering(cases, Cover::each_pair, factors_of);
}

train::RunConfig config_of(const GridCase& one) {
  // Numbers of neighbouring cases differ in few factors, so the settings cycle with lengths that
  // have no common divisor.
  const std::size_t n = one.number * 7 + one.number / 3;
  train::RunConfig config;
  config.model = model::model_preset("tiny");
  config.model.num_heads = one.tp > 4 ? 8 : 4;
  config.model.num_kv_heads = 2;
  config.model.tie_embeddings = n % 3 != 0;
  config.model.dropout = n % 11 == 4 ? 0.2 : 0;
  if (one.folds() || n % 4 == 2) {
    config.model.moe.num_experts = std::max<std::int64_t>(4, n % 2 == 0 ? one.ep : 8);
    config.model.moe.num_experts_per_tok = 1 + static_cast<std::int64_t>(n % 3);
    config.model.moe.num_shared_experts = static_cast<std::int64_t>(n % 2);
    config.model.moe.first_dense_layers = static_cast<std::int64_t>(n / 4 % 2);
    config.model.moe.router_aux_loss = n % 8 == 2 ? "sequence" : "micro_batch";
    config.model.moe.router_aux_loss_coef = 0.3;
    if (n % 5 == 3) config.model.moe.router_balance = "bias";
  }
  config.parallel.tp = one.tp;
  config.parallel.pp = one.pp;
  config.parallel.cp = one.cp;
  config.parallel.ep = one.ep;
  config.parallel.etp = one.etp == one.tp ? 0 : one.etp;
  config.parallel.schedule = one.schedule;
  config.parallel.virtual_stages =
      one.schedule == "interleaved" ? 1 + static_cast<std::int64_t>(n % 3) : 1;
  config.parallel.zero = one.zero;
  config.parallel.zero_reshard = n % 5 != 1;
  config.parallel.pp_regather = n % 5 == 2 ? "update" : "micro_batch";
  config.parallel.zero_prefetch = static_cast<std::int64_t>(n % 3);
  config.parallel.zero_persist = n % 7 == 2 ? 40 : 0;
  config.parallel.sequence_parallel = one.tp > 1 && n % 2 == 0;
  config.parallel.recompute = std::array{"none", "selective", "full"}[n / 2 % 3];
  config.parallel.cp_form = one.cp > 2 || one.tp > 2 || n % 2 == 0 ? "ring" : "all_gather";
  config.parallel.offload = n % 13 == 5 ? "optimizer" : "none";
  config.parallel.bucket_mb = n % 4 == 0 ? 0.002 : -1;
  if (n % 9 == 3) {
    config.lora.rank = 2;
    config.lora.alpha = 4;
  }
  config.optim = optim::optimizer_defaults(n % 4 == 1    ? "sgd"
                                           : n % 8 == 7  ? "muon"
                                           : n % 16 == 3 ? "normuon"
                                                         : "adamw");
  config.optim.lr = 1e-2;  // the rate of a trial
  config.train.accumulation = one.micro_batches;
  return config;
}

std::string name_of(const GridCase& one) {
  return formatted("case {}: dp {} tp {} pp {} cp {} ep {} etp {} {} zero {} m {}", one.number,
                   one.dp, one.tp, one.pp, one.cp, one.ep, one.etp,
                   one.pp == 1 ? "no stages" : one.schedule, one.zero,
                   std::array{"1", "p", "2p+1"}.at(static_cast<std::size_t>(batches_of(one))));
}

}  // namespace trireme::testing
