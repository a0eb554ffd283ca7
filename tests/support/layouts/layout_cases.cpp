#include "support/layouts/layout_cases.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "core/error.hpp"
#include "core/number.hpp"
#include "core/philox.hpp"
#include "optim/optimizer.hpp"
#include "parallel/context/attention.hpp"
#include "parallel/recompute.hpp"
#include "support/layouts/covering.hpp"
#include "train/config/layout.hpp"

namespace trireme::testing {
namespace {

constexpr std::int64_t kSteps = 3;
constexpr std::int64_t kPersist = 64;  // norms (by elements), but no matrix

// ---- factors

FactorValues factors_of(const LayoutCase& one) {
  const std::int64_t form = one.cp > 1 ? one.form : 3;  // none
  return {{one.dp, one.tp, one.cp, one.zero, one.sequence, form, one.recompute, one.accumulation,
           one.sgd},
          one.ranks()};
}

void add_cases_of(LayoutCase one, std::vector<LayoutCase>& cases) {
  for (one.zero = 0; one.zero <= (one.dp * one.cp > 1 ? 3 : 0); ++one.zero)
    for (const bool sequence : {false, true})
      for (one.form = 0; one.form < (one.cp > 1 ? 3 : 1); ++one.form)
        for (one.recompute = 0; one.recompute < 3; ++one.recompute)
          for (const std::int64_t accumulation : {1, 3})
            for (const bool sgd : {false, true}) {
              if (sequence && one.tp == 1) continue;
              one.sequence = sequence;
              one.accumulation = accumulation;
              one.sgd = sgd;
              one.number = static_cast<std::int64_t>(cases.size());
              cases.push_back(one);
            }
}

// ---- model

/// 24 heads suit every factorization and form; 9 and 5 suit only some. The MLP and all vocabularies
/// but 64 have odd sizes.
model::ModelConfig shape_of(std::size_t shape) {
  struct Sizes {
    const char* preset;
    std::int64_t heads, key_heads, vocab;
    bool tied;
    double dropout;
    std::int64_t experts = 0;
    std::int64_t experts_per_tok = 0;
    std::int64_t shared_experts = 0;
    std::int64_t first_dense = 0;
    const char* score = "softmax";
    const char* balance = "aux";
  };

  constexpr std::array<Sizes, kNumShapes> kShapes{
      {{"tiny", 24, 8, 61, true, 0},
       {"minimind-2", 24, 1, 67, false, 0.1},
       {"tiny", 24, 3, 64, false, 0.1},
       {"minimind-2", 9, 3, 61, true, 0.1},
       {"tiny", 5, 5, 67, false, 0},
       {"tiny", 24, 8, 61, true, 0.1, 7, 1},
       {"minimind-2", 24, 3, 67, false, 0, 3, 2, 2, 1, "sigmoid", "bias"}}};
  const Sizes& sizes = kShapes.at(shape);
  model::ModelConfig model = model::model_preset(sizes.preset);
  model.num_layers = 2;
  model.hidden_size = 16;
  model.num_heads = sizes.heads;
  model.num_kv_heads = sizes.key_heads;
  model.head_dim = 4;
  model.intermediate_size = 27;
  model.max_seq_len = kRowLength;
  model.tie_embeddings = sizes.tied;
  model.dropout = sizes.dropout;
  model.moe.num_experts = sizes.experts;
  model.moe.num_experts_per_tok = sizes.experts_per_tok;
  model.moe.moe_intermediate_size = 13;
  model.moe.num_shared_experts = sizes.shared_experts;
  model.moe.first_dense_layers = sizes.first_dense;
  model.moe.router_score = sizes.score;
  // With one expert per token, the router would have no gradient.
  model.moe.norm_topk_prob = sizes.experts_per_tok > 1;
  model.moe.router_balance = sizes.balance;
  model.moe.router_aux_loss_coef = 0.3;
  model.moe.router_bias_rate = 0.05;
  model::resolve(model, sizes.vocab);
  return model;
}

bool fits(const model::ModelConfig& model, const parallel::ParallelConfig& parallel, int ranks) {
  Problems problems;
  train::check_layout(parallel, {model, {kRowLength}, ranks}, problems);
  return problems.empty();
}

parallel::ParallelConfig factors_as_keys(const LayoutCase& one) {
  parallel::ParallelConfig keys;
  keys.tp = one.tp;
  keys.cp = one.cp;
  keys.zero = one.zero;
  keys.sequence_parallel = one.sequence;
  keys.cp_form = parallel::kContextForms.at(static_cast<std::size_t>(one.form));
  keys.recompute = parallel::kRecomputes.at(static_cast<std::size_t>(one.recompute));
  return keys;
}

std::string words_of(const model::LoraConfig& lora) {
  return formatted("adapters of {}, dropout {}, rslora {}", lora.targets, lora.dropout,
                   lora.rslora);
}

LayoutRows rows_of(const LayoutCase& one, const LayoutSettings& turns) {
  return {turns.rows, shape_of(turns.shape).vocab_size, one.dp, one.accumulation};
}

/// `exact` is left to unit tests: zero singular values of a layout differ by rounding.
optim::OptimConfig muon_of(const LayoutCase& one, double lr) {
  const auto turn = static_cast<std::size_t>(one.number / 2);
  optim::OptimConfig config = optim::optimizer_defaults(turn % 2 == 0 ? "muon" : "normuon");
  config.lr = lr;
  for (optim::OptimizerKey& key : config.keys) {
    if (key.name == "eps") key.value = 1e-6;
    if (key.name == "embed_lr") key.value = 2 * lr;
    if (key.name == "momentum_warmup") key.value = std::int64_t{2};
    if (key.name == "cautious") key.value = turn % 3 == 0;
    if (key.name == "orthogonalize")
      key.value =
          std::array<std::string, 3>{"polar_express", "newton_schulz", "gram"}[turn / 2 % 3];
  }
  return config;
}

train::TrialPlan plan_without_layout(const LayoutCase& one, const LayoutSettings& turns) {
  train::TrialPlan plan;
  plan.model = shape_of(turns.shape);
  plan.steps = kSteps;
  plan.lr = 1e-2;
  // AdamW's first step is lr g / (|g| + eps). If the gradient g is only rounding error, a small eps
  // makes the step random.
  for (optim::OptimizerKey& key : plan.optim.keys)
    if (key.name == "eps") key.value = 1e-6;
  if (one.sgd) {
    plan.optim = optim::optimizer_defaults("sgd");
    plan.optim.clip_norm = 0.01;
    plan.lr = 1;
  }
  if (one.muon) plan.optim = muon_of(one, plan.lr);
  plan.prepare = set_learned_weights;
  if (one.lora) plan.lora = turns.adapters;
  const LayoutRows rows = rows_of(one, turns);
  plan.targets = [=](std::int64_t step) { return rows.of(step, 0, rows.in_update()).num_targets; };
  return plan;
}

}  // namespace

LayoutSettings layout_settings_of(const LayoutCase& one) {
  // Both optimizers of a layout get the same settings.
  const auto layout = static_cast<std::uint64_t>(one.number / 2);
  const auto turn = [&](std::uint64_t what, std::size_t count) {
    return philox4x32(philox_key(12, "turns"), layout, what)[0] % count;
  };
  LayoutSettings turns;
  turns.rows = static_cast<RowKind>(turn(0, kRowKindNames.size()));
  turns.by_work = one.cp > 1 && turn(1, 2) == 1;
  turns.zero_reshard = turn(2, 2) == 0;
  turns.zero_prefetch = static_cast<std::int64_t>(turn(3, 3));
  turns.bucket_mb = std::array{0.0, 1e-9, 0.01}.at(turn(4, 3));  // none, the smallest, some
  const std::int64_t data = one.dp * one.cp;
  if (one.zero > 0) {
    std::vector<std::int64_t> shards{0};
    for (std::int64_t shard = 2; shard < data; ++shard)
      if (data % shard == 0) shards.push_back(shard);
    turns.zero_shard = shards[turn(5, shards.size())];
  }
  turns.zero_persist = one.zero == 3 && turn(7, 2) == 1 ? kPersist : 0;
  turns.hierarchical = one.zero == 0 && data >= 4 && turn(8, 2) == 1;
  turns.offload = turn(9, 4) == 3;
  if (one.tp > 1) turns.tp_chunks = std::array{1, 2, 3, 5}.at(turn(15, 4));  // at least 6 tokens
  turns.adapters.rank = 3;
  turns.adapters.alpha = 1.5;  // these terms are smaller than the values they are added to
  turns.adapters.rslora = turn(11, 2) == 1;
  turns.adapters.dropout = turn(12, 2) == 1 ? 0.2 : 0;
  turns.adapters.targets =
      std::array{"all-linear", "v_proj,q_proj", "k_proj,o_proj,gate_proj,down_proj"}.at(
          turn(13, 3));
  turns.shape = turn(6, kNumShapes);
  while (!fits(shape_of(turns.shape), factors_as_keys(one), one.ranks()))
    turns.shape = (turns.shape + 1) % kNumShapes;
  if (shape_of(turns.shape).moe.on()) turns.tp_chunks = 1;
  return turns;
}

std::string name_of(const LayoutCase& one) {
  const LayoutSettings turns = layout_settings_of(one);
  const parallel::ParallelConfig keys = factors_as_keys(one);
  return formatted(
             "case {}: dp {} tp {} cp {} {} {} zero {} shard {} reshard {} prefetch {} persist {} "
             "sequence {} chunks {} recompute {} accumulation {} {} bucket {} hierarchical {} offload {} shape {} "
             "rows {}",
             one.number, one.dp, one.tp, one.cp, keys.cp_form, turns.by_work ? "work" : "zigzag",
             one.zero, turns.zero_shard, turns.zero_reshard, turns.zero_prefetch,
             turns.zero_persist, one.sequence, turns.tp_chunks, keys.recompute, one.accumulation,
             one.sgd    ? "sgd"
             : one.muon ? "muon"
                        : "adamw",
             turns.bucket_mb, turns.hierarchical, turns.offload, turns.shape,
             kRowKindNames.at(static_cast<std::size_t>(turns.rows))) +
         (one.lora ? " " + words_of(turns.adapters) : "");
}

std::vector<LayoutCase> all_layout_cases() {
  std::vector<LayoutCase> cases;
  for (const std::int64_t ranks : {1, 2, 3, 4, 6, 8})
    for (std::int64_t dp = 1; dp <= ranks; ++dp)
      for (std::int64_t tp = 1; tp <= ranks / dp; ++tp)
        if (ranks % (dp * tp) == 0) add_cases_of({0, dp, tp, ranks / (dp * tp)}, cases);
  return cases;
}

std::vector<LayoutCase> with_one_optimizer(std::vector<LayoutCase> cases) {
  std::erase_if(cases, [](const LayoutCase& one) {
    const auto layout = static_cast<std::uint64_t>(one.number / 2);
    return one.sgd != (philox4x32(philox_key(12, "optimizers"), layout, 0)[0] % 2 == 1);
  });
  return cases;
}

std::vector<LayoutCase> covering_set(const std::vector<LayoutCase>& cases) {
  return covering(cases, Cover::each_pair, factors_of);
}

std::vector<LayoutCase> each_value_once(const std::vector<LayoutCase>& cases) {
  return covering(cases, Cover::each_value, factors_of);
}

std::vector<LayoutCase> with_muon(std::vector<LayoutCase> cases) {
  std::erase_if(cases, [](const LayoutCase& one) { return one.sgd; });
  for (LayoutCase& one : cases) one.muon = true;
  return cases;
}

std::vector<LayoutCase> with_adapters(std::vector<LayoutCase> cases) {
  for (LayoutCase& one : cases) one.lora = true;
  return cases;
}

bool is_matrix_run() {
  return std::getenv("TRIREME_TEST_MATRIX") != nullptr;
}

std::pair<std::size_t, std::size_t> matrix_part() {
  const std::string_view value = std::getenv("TRIREME_TEST_MATRIX");
  const std::size_t slash = value.find('/');
  std::optional<std::int64_t> part;
  std::optional<std::int64_t> parts;
  if (slash != std::string_view::npos) {
    part = parse_integer(value.substr(0, slash));
    parts = parse_integer(value.substr(slash + 1));
  }
  if (!part || !parts || *part < 1 || *part > *parts) {
    fail(ErrorKind::usage, "TRIREME_TEST_MATRIX = {}, must be K/N: part K of N, 1 <= K <= N",
         value);
  }
  return {static_cast<std::size_t>(*part - 1), static_cast<std::size_t>(*parts)};
}

std::vector<LayoutCase> cases_of_this_run(const std::vector<LayoutCase>& by_default,
                                          const std::vector<LayoutCase>& in_matrix) {
  if (!is_matrix_run()) return by_default;
  const auto [part, parts] = matrix_part();
  std::vector<LayoutCase> cases;
  for (const LayoutCase& one : in_matrix)
    if (static_cast<std::size_t>(one.number) / 2 % parts == part) cases.push_back(one);
  return cases;
}

train::TrialPlan layout_plan(const LayoutCase& one) {
  const LayoutSettings turns = layout_settings_of(one);
  train::TrialPlan plan = plan_without_layout(one, turns);
  plan.parallel = factors_as_keys(one);
  plan.parallel.cp_balance = turns.by_work ? "work" : "zigzag";
  plan.parallel.tp_chunks = turns.tp_chunks;
  plan.parallel.zero_shard = turns.zero_shard;
  plan.parallel.zero_reshard = turns.zero_reshard;
  plan.parallel.zero_prefetch = turns.zero_prefetch;
  plan.parallel.zero_persist = turns.zero_persist;
  plan.parallel.hierarchical = turns.hierarchical;
  if (turns.offload) plan.parallel.offload = "optimizer";
  plan.parallel.bucket_mb = turns.bucket_mb;
  for (int rank = 0; turns.hierarchical && rank < one.ranks(); ++rank)
    plan.node_of_rank.push_back(2 * rank / one.ranks());
  const LayoutRows rows = rows_of(one, turns);
  plan.batches = [=](int rank, std::int64_t step) {
    std::vector<data::Batch> batches;
    for (std::int64_t i = 0; i < rows.accumulation; ++i)
      batches.push_back(rows.of(step, rows.before(rank, i), rows.in_micro_batch(rank, i)));
    return batches;
  };
  return plan;
}

train::TrialPlan one_process_plan(const LayoutCase& one) {
  const LayoutSettings turns = layout_settings_of(one);
  train::TrialPlan plan = plan_without_layout(one, turns);
  const LayoutRows rows = rows_of(one, turns);
  plan.batches = [=](int, std::int64_t step) {
    return std::vector<data::Batch>{rows.of(step, 0, rows.in_update())};
  };
  return plan;
}

std::string one_process_key(const LayoutCase& one) {
  const LayoutSettings turns = layout_settings_of(one);
  const LayoutRows rows = rows_of(one, turns);
  const auto muon = one.muon ? one.number / 2 % 6 : -1;  // muon_of() repeats after 6 layouts
  return formatted("{} {} {} {} {} {} {}", one.sgd, muon, turns.shape, static_cast<int>(turns.rows),
                   rows.in_update(), rows.first_without_targets(),
                   one.lora ? words_of(turns.adapters) : "");
}

at::Tensor learned_values(const parallel::ParamRegistry& registry, parallel::ParamId id) {
  const std::vector<std::int64_t>& shape = registry.spec(id).shape;
  const at::Generator random = at::detail::createCPUGenerator(1000 + id);
  const at::Tensor normal = at::randn(shape, random, at::kFloat);
  if (shape.size() == 1) return normal.mul(0.2F).add(1.0F);
  return normal.mul(1.0F / std::sqrt(static_cast<float>(shape.back())));
}

void set_weights(parallel::ParamRegistry& registry,
                 const std::function<at::Tensor(parallel::ParamId)>& values_of) {
  registry.weights().settle();
  const at::NoGradGuard no_grad;
  const parallel::UnitLayout& layout = registry.layout();
  for (std::size_t unit = 0; unit < layout.units().size(); ++unit) {
    const parallel::IndexRange part = layout.part(unit);
    for (const parallel::ParamSpan& span : layout.spans(unit, part)) {
      const std::vector<std::int64_t>& shape = registry.spec(span.id).shape;
      const at::Tensor whole = values_of(span.id).flatten();
      parallel::Slice slice = layout.param(span.id).slice;
      slice.flat_begin = span.first;
      slice.flat_end = span.first + span.count;
      for (const parallel::SliceRun& run :
           parallel::intersect(shape, slice, parallel::Slice::whole(shape))) {
        registry.master_part(unit)
            .narrow(0, span.begin - part.begin + run.source_index, run.count)
            .copy_(whole.narrow(0, run.target_index, run.count));
      }
    }
  }
  registry.refresh_weights();
}

void set_learned_weights(parallel::ParamRegistry& registry) {
  set_weights(registry, [&](parallel::ParamId id) { return learned_values(registry, id); });
}

}  // namespace trireme::testing
